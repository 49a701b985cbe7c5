import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.paimon.append.AppendCompactCoordinator;
import org.apache.paimon.append.AppendCompactTask;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalMap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.operation.BaseAppendFileStoreWrite;
import org.apache.paimon.options.ExpireConfig;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.reader.RecordReaderIterator;
import org.apache.paimon.table.AppendOnlyFileStoreTable;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.source.StreamTableScan;
import org.apache.paimon.types.ArrayType;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.MapType;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;

/**
 * Apache Paimon as a judge: answers requests on standard input until it ends, so that one JVM serves many tests.
 *
 * <p>A request is a line of percent-encoded fields joined by tabs:
 *
 * <pre>
 *   read   WAREHOUSE  DB.TABLE  [COLUMN OPERATOR COUNT LITERAL...]...     operators: = <> < <= > >= in isnull notnull
 *   between WAREHOUSE DB.TABLE  START END MODE                           what was committed after START up to END
 *   append WAREHOUSE  DB.TABLE  ROWS  FIELD...                            FIELD: "N" for NULL, or "V" and the literal
 *   write  WAREHOUSE  DB.TABLE  COMPACT ROWS [KIND BUCKET FIELD...]...   COMPACT: "no" or "full"; BUCKET may be empty
 *   changes WAREHOUSE DB.TABLE  SNAPSHOT                                 what a stream from that snapshot on reads
 *   expire WAREHOUSE  DB.TABLE                                           expire snapshots and changelogs by the table's options
 *   schema WAREHOUSE  DB.TABLE
 * </pre>
 *
 * <p>A write merges, looks up and compacts as Paimon's own batch jobs do; "full" compacts every bucket of the table fully, and the small files of one without buckets. Rows
 * of changes begin with their kind (+I, -U, +U, -D).
 *
 * <p>The answer is rows as JSON arrays, one a line, then one line that is a JSON object: {"splits":n,"files":n,"rows":n} or
 * {"error":"..."}. Values JSON lacks: {"$decimal":"1.50"} {"$date":"..."} {"$timestamp":[millis,nanos of the milli]}
 * {"$binary":"hex"} {"$float":"NaN"} {"$map":[[k,v]...]}; structs and arrays are lists.
 *
 * <p>A filter is pushed down and not applied to the rows again: what comes back is what Paimon's own pruning (partitions,
 * statistics, file index, row groups) lets through.
 */
public class PaimonPeer {
    private static final Map<String, Catalog> CATALOGS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err); // whatever a library prints must not fall into the answers
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] request = line.split("\t", -1);
            for (int i = 0; i < request.length; i++) request[i] = URLDecoder.decode(request[i], StandardCharsets.UTF_8);
            try {
                answer(request, out);
            } catch (Throwable e) {
                java.io.StringWriter trace = new java.io.StringWriter();
                e.printStackTrace(new java.io.PrintWriter(trace));
                out.println("{\"error\":" + quote(trace.toString()) + "}");
            }
            out.flush();
        }
    }

    private static void answer(String[] request, PrintStream out) throws Exception {
        Table table = table(request[1], request[2]);
        switch (request[0]) {
            case "read": read(table, request, out); break;
            case "between": between(table, request, out); break;
            case "append": append(table, request, out); break;
            case "write": write(table, request, out); break;
            case "changes": changes(table, request[3], out); break;
            case "expire": expire((FileStoreTable) table, out); break;
            case "schema": schema(table, out); break;
            default: throw new IllegalArgumentException(request[0]);
        }
    }

    private static Table table(String warehouse, String name) throws Exception {
        Catalog catalog = CATALOGS.get(warehouse);
        if (catalog == null) {
            Options options = new Options();
            options.set("warehouse", warehouse);
            options.set("cache-enabled", "false"); // every request must see the files as they are now
            catalog = CatalogFactory.createCatalog(CatalogContext.create(options));
            CATALOGS.put(warehouse, catalog);
        }
        String[] parts = name.split("\\.", 2);
        return catalog.getTable(Identifier.create(parts[0], parts[1]));
    }

    private static void read(Table table, String[] request, PrintStream out) throws Exception {
        RowType type = table.rowType();
        ReadBuilder builder = table.newReadBuilder();
        for (int at = 3; at < request.length; ) {
            int count = Integer.parseInt(request[at + 2]);
            List<String> texts = Arrays.asList(request).subList(at + 3, at + 3 + count);
            builder.withFilter(predicate(type, request[at], request[at + 1], texts));
            at += 3 + count;
        }
        List<Split> splits = builder.newScan().plan().splits();
        InternalRow.FieldGetter[] getters = getters(type);
        long rows = 0, files = 0;
        for (Split split : splits) {
            if (split instanceof DataSplit) files += ((DataSplit) split).dataFiles().size();
            try (RecordReaderIterator<InternalRow> it =
                    new RecordReaderIterator<>(builder.newRead().createReader(split))) {
                while (it.hasNext()) {
                    out.println(json(it.next(), type, getters));
                    rows++;
                }
            }
        }
        out.println("{\"splits\":" + splits.size() + ",\"files\":" + files + ",\"rows\":" + rows + "}");
    }

    private static void between(Table table, String[] request, PrintStream out) throws Exception {
        Map<String, String> options = new HashMap<>();
        options.put("incremental-between", request[3] + "," + request[4]);
        options.put("incremental-between-scan-mode", request[5]);
        read(table.copy(options), Arrays.copyOf(request, 3), out);
    }

    private static Predicate predicate(RowType type, String column, String operator, List<String> texts) {
        PredicateBuilder builder = new PredicateBuilder(type);
        int field = type.getFieldIndex(column);
        if (field < 0) throw new IllegalArgumentException("no column " + column);
        List<Object> literals = new ArrayList<>();
        for (String text : texts) literals.add(literal(type.getTypeAt(field), text));
        switch (operator) {
            case "=": return builder.equal(field, literals.get(0));
            case "<>": return builder.notEqual(field, literals.get(0));
            case "<": return builder.lessThan(field, literals.get(0));
            case "<=": return builder.lessOrEqual(field, literals.get(0));
            case ">": return builder.greaterThan(field, literals.get(0));
            case ">=": return builder.greaterOrEqual(field, literals.get(0));
            case "in": return builder.in(field, literals);
            case "isnull": return builder.isNull(field);
            case "notnull": return builder.isNotNull(field);
            default: throw new IllegalArgumentException(operator);
        }
    }

    private static void append(Table table, String[] request, PrintStream out) throws Exception {
        RowType type = table.rowType();
        int rows = Integer.parseInt(request[3]);
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        try (BatchTableWrite write = builder.newWrite(); BatchTableCommit commit = builder.newCommit()) {
            for (int r = 0, at = 4; r < rows; r++) {
                GenericRow row = new GenericRow(type.getFieldCount());
                for (int i = 0; i < type.getFieldCount(); i++, at++) {
                    row.setField(i, request[at].equals("N") ? null : literal(type.getTypeAt(i), request[at].substring(1)));
                }
                write.write(row);
            }
            commit.commit(write.prepareCommit());
        }
        out.println("{\"rows\":" + rows + "}");
    }

    private static void write(Table table, String[] request, PrintStream out) throws Exception {
        RowType type = table.rowType();
        boolean all = request[3].equals("full");
        boolean unaware = ((FileStoreTable) table).bucketMode() == BucketMode.BUCKET_UNAWARE;
        boolean full = all && !unaware;
        int rows = Integer.parseInt(request[4]);
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        java.io.File spill = java.nio.file.Files.createTempDirectory("paimon-peer").toFile();
        try (IOManager io = IOManager.create(spill.getPath());
                BatchTableWrite write = (BatchTableWrite) builder.newWrite().withIOManager(io);
                BatchTableCommit commit = builder.newCommit()) {
            Map<String, Object[]> touched = new java.util.LinkedHashMap<>();
            if (full) {
                for (Split split : table.newReadBuilder().newScan().plan().splits()) touch(touched, (DataSplit) split);
            }
            for (int r = 0, at = 5; r < rows; r++) {
                GenericRow row = new GenericRow(RowKind.fromShortString(request[at]), type.getFieldCount());
                String bucket = request[at + 1];
                at += 2;
                for (int i = 0; i < type.getFieldCount(); i++, at++) {
                    row.setField(i, request[at].equals("N") ? null : literal(type.getTypeAt(i), request[at].substring(1)));
                }
                if (bucket.isEmpty()) write.write(row); else write.write(row, Integer.parseInt(bucket));
                BinaryRow partition = write.getPartition(row).copy();
                int b = bucket.isEmpty() ? write.getBucket(row) : Integer.parseInt(bucket);
                touched.put(partition.hashCode() + "/" + b, new Object[] {partition, b});
            }
            if (full) for (Object[] pb : touched.values()) write.compact((BinaryRow) pb[0], (Integer) pb[1], true);
            commit.commit(write.prepareCommit());
        }
        if (all && unaware) compactSmallFiles((AppendOnlyFileStoreTable) table);
        out.println("{\"rows\":" + rows + "}");
    }

    private static void compactSmallFiles(AppendOnlyFileStoreTable table) throws Exception {
        List<CommitMessage> messages = new ArrayList<>();
        BaseAppendFileStoreWrite write = table.store().newWrite("peer");
        try (BatchTableCommit commit = table.newBatchWriteBuilder().newCommit()) {
            for (AppendCompactTask task : new AppendCompactCoordinator(table, false).run()) {
                messages.add(task.doCompact(table, write));
            }
            commit.commit(messages);
        } finally {
            write.close();
        }
    }

    private static void touch(Map<String, Object[]> touched, DataSplit split) {
        String key = split.partition().hashCode() + "/" + split.bucket();
        touched.put(key, new Object[] {split.partition().copy(), split.bucket()});
    }

    private static void changes(Table table, String snapshot, PrintStream out) throws Exception {
        Map<String, String> from = new HashMap<>();
        from.put("scan.mode", "from-snapshot");
        from.put("scan.snapshot-id", snapshot);
        Table stream = table.copy(from);
        RowType type = table.rowType();
        InternalRow.FieldGetter[] getters = getters(type);
        ReadBuilder builder = stream.newReadBuilder();
        StreamTableScan scan = builder.newStreamScan();
        long last = table.latestSnapshot().map(s -> s.id()).orElse(0L), rows = 0;
        do {
            for (Split split : scan.plan().splits()) {
                try (RecordReaderIterator<InternalRow> it =
                        new RecordReaderIterator<>(builder.newRead().createReader(split))) {
                    while (it.hasNext()) {
                        InternalRow row = it.next();
                        String values = json(row, type, getters);
                        out.println("[" + quote(row.getRowKind().shortString()) + "," + values.substring(1));
                        rows++;
                    }
                }
            }
        } while (scan.checkpoint() != null && scan.checkpoint() <= last);
        out.println("{\"rows\":" + rows + "}");
    }

    private static void expire(FileStoreTable table, PrintStream out) {
        ExpireConfig limits = table.coreOptions().expireConfig();
        int snapshots = table.newExpireSnapshots().config(limits).expire();
        int changelogs = table.newExpireChangelog().config(limits).expire();
        out.println("{\"rows\":0,\"snapshots\":" + snapshots + ",\"changelogs\":" + changelogs + "}");
    }

    private static void schema(Table table, PrintStream out) {
        for (int i = 0; i < table.rowType().getFieldCount(); i++) {
            out.println("[" + quote(table.rowType().getFieldNames().get(i)) + ","
                    + quote(table.rowType().getTypeAt(i).asSQLString()) + "]");
        }
        out.println("{\"rows\":" + table.rowType().getFieldCount() + "}");
    }

    private static InternalRow.FieldGetter[] getters(RowType type) {
        InternalRow.FieldGetter[] getters = new InternalRow.FieldGetter[type.getFieldCount()];
        for (int i = 0; i < getters.length; i++) getters[i] = InternalRow.createFieldGetter(type.getTypeAt(i), i);
        return getters;
    }

    /** Texts as the Python side writes them: DATE as ISO, TIMESTAMP as microseconds, bytes as hex. */
    private static Object literal(DataType type, String text) {
        switch (type.getTypeRoot()) {
            case BOOLEAN: return Boolean.valueOf(text);
            case TINYINT: return Byte.valueOf(text);
            case SMALLINT: return Short.valueOf(text);
            case INTEGER: return Integer.valueOf(text);
            case BIGINT: return Long.valueOf(text);
            case FLOAT: return Float.valueOf(text);
            case DOUBLE: return Double.valueOf(text);
            case DATE: return (int) LocalDate.parse(text).toEpochDay();
            case DECIMAL:
                DecimalType d = (DecimalType) type;
                return Decimal.fromBigDecimal(new BigDecimal(text), d.getPrecision(), d.getScale());
            case CHAR:
            case VARCHAR: return BinaryString.fromString(text);
            case BINARY:
            case VARBINARY: return HexFormat.of().parseHex(text);
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE: return Timestamp.fromMicros(Long.parseLong(text));
            default: throw new IllegalArgumentException("no literal of type " + type);
        }
    }

    private static String json(InternalRow row, RowType type, InternalRow.FieldGetter[] getters) {
        StringJoiner out = new StringJoiner(",", "[", "]");
        for (int i = 0; i < getters.length; i++) out.add(json(getters[i].getFieldOrNull(row), type.getTypeAt(i)));
        return out.toString();
    }

    private static String json(Object value, DataType type) {
        if (value == null) return "null";
        switch (type.getTypeRoot()) {
            case FLOAT:
            case DOUBLE:
                double number = ((Number) value).doubleValue();
                boolean finite = !Double.isNaN(number) && !Double.isInfinite(number);
                return finite ? Double.toString(number) : "{\"$float\":\"" + number + "\"}";
            case DECIMAL: return "{\"$decimal\":\"" + ((Decimal) value).toBigDecimal().toPlainString() + "\"}";
            case DATE: return "{\"$date\":\"" + LocalDate.ofEpochDay((Integer) value) + "\"}";
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                Timestamp t = (Timestamp) value;
                return "{\"$timestamp\":[" + t.getMillisecond() + "," + t.getNanoOfMillisecond() + "]}";
            case CHAR:
            case VARCHAR: return quote(value.toString());
            case BINARY:
            case VARBINARY: return "{\"$binary\":\"" + HexFormat.of().formatHex((byte[]) value) + "\"}";
            case ARRAY: return elements((InternalArray) value, ((ArrayType) type).getElementType()).toString();
            case MAP:
                InternalMap map = (InternalMap) value;
                List<String> keys = elements(map.keyArray(), ((MapType) type).getKeyType());
                List<String> values = elements(map.valueArray(), ((MapType) type).getValueType());
                StringJoiner pairs = new StringJoiner(",", "{\"$map\":[", "]}");
                for (int i = 0; i < keys.size(); i++) pairs.add("[" + keys.get(i) + "," + values.get(i) + "]");
                return pairs.toString();
            case ROW: return json((InternalRow) value, (RowType) type, getters((RowType) type));
            default: return value.toString(); // integers and booleans
        }
    }

    private static List<String> elements(InternalArray array, DataType type) {
        InternalArray.ElementGetter getter = InternalArray.createElementGetter(type);
        List<String> out = new ArrayList<>();
        for (int i = 0; i < array.size(); i++) out.add(json(getter.getElementOrNull(array, i), type));
        return out;
    }

    private static String quote(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < 0x20 || c > 0x7e) out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.append('"').toString();
    }
}
