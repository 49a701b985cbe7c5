import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.paimon.CoreOptions;
import org.apache.paimon.casting.CastExecutor;
import org.apache.paimon.casting.CastExecutors;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.data.serializer.InternalRowSerializer;
import org.apache.paimon.data.serializer.InternalSerializers;
import org.apache.paimon.data.serializer.Serializer;
import org.apache.paimon.fileindex.FileIndexFormat;
import org.apache.paimon.fileindex.FileIndexPredicate;
import org.apache.paimon.fileindex.FileIndexResult;
import org.apache.paimon.fileindex.FileIndexWriter;
import org.apache.paimon.fileindex.FileIndexer;
import org.apache.paimon.fileindex.bitmap.BitmapIndexResult;
import org.apache.paimon.format.SimpleColStats;
import org.apache.paimon.mergetree.compact.aggregate.FieldAggregator;
import org.apache.paimon.mergetree.compact.aggregate.factory.FieldAggregatorFactory;
import org.apache.paimon.options.ConfigOption;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.schema.SchemaManager;
import org.apache.paimon.schema.SchemaValidation;
import org.apache.paimon.schema.TableSchema;
import org.apache.paimon.statistics.SimpleColStatsCollector;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.InternalRowPartitionComputer;
import org.apache.paimon.utils.JsonSerdeUtil;
import org.apache.paimon.utils.LazyField;
import org.apache.paimon.utils.PartitionPathUtils;
import org.apache.paimon.utils.SerializationUtils;

/**
 * Single functions of Apache Paimon as a judge: answers requests on standard input until it ends.
 *
 * <p>A request is a line of percent-encoded fields joined by tabs. A VALUE is "N" for NULL, or "V" and its text: numbers as such, FLOAT and DOUBLE by their bits, DECIMAL unscaled,
 * DATE in days, TIME in milliseconds, TIMESTAMP as milliseconds and nanoseconds of the millisecond, bytes as hex.
 *
 * <pre>
 *   cast      FROM TO VALUE                           the value in the other type
 *   option    NAME TEXT                               the value that a table's option takes
 *   create    COLUMN|COLUMN PARTITIONS KEYS [NAME TEXT]...    the JSON of the first schema
 *   alter     SCHEMA HAS_SNAPSHOT [CHANGE]...         the JSON of the next schema; a change has its parts joined by U+0001
 *   aggregate FUNCTION TYPE [+|-|r VALUE]...          what is left after adding, taking back and adding older values
 *   row       [TYPE VALUE]...                         the hex of the BinaryRow with its arity, a bar, and its hash
 *   folder    TYPE LEGACY VALUE                       the folder of a partition
 *   build     TYPE KIND OPTIONS VALUE...              the hex of a container with the column's index of a kind; OPTIONS: NAME=TEXT between commas
 *   evaluate  TYPE HEX OPERATOR VALUE...              the rows that a container leaves: "all", "none" or numbers between commas
 *   bounds    TYPE MODE VALUE...                      smallest and largest value and number of NULLs that a statistics mode keeps, joined by tabs
 * </pre>
 *
 * <p>The answer is one line, {"value":"..."} or {"refused":"..."}, percent-encoded.
 */
public class PaimonFunctions {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] request = line.split("\t", -1);
            for (int i = 0; i < request.length; i++) {
                request[i] = URLDecoder.decode(request[i], StandardCharsets.UTF_8);
            }
            String answer;
            try {
                answer = "{\"value\":\"" + encode(answer(request)) + "\"}";
            } catch (Throwable e) {
                answer = "{\"refused\":\"" + encode(String.valueOf(e)) + "\"}";
            }
            out.println(answer);
            out.flush();
        }
    }

    private static String encode(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    private static String answer(String[] request) throws Exception {
        switch (request[0]) {
            case "cast": return cast(type(request[1]), type(request[2]), request[3]);
            case "option": return option(request[1], request[2]);
            case "create": return create(request);
            case "alter": return alter(request);
            case "aggregate": return aggregate(request);
            case "row": return row(request);
            case "folder": return folder(type(request[1]), Boolean.parseBoolean(request[2]), request[3]);
            case "build": return build(request);
            case "evaluate": return evaluate(request);
            case "bounds": return bounds(request);
            default: throw new IllegalArgumentException("unknown request " + request[0]);
        }
    }

    private static DataType type(String text) {
        return DataTypeJsonParser.parseAtomicTypeSQLString(text);
    }

    @SuppressWarnings("unchecked")
    private static String cast(DataType from, DataType to, String value) {
        CastExecutor<Object, Object> executor = (CastExecutor<Object, Object>) CastExecutors.resolve(from, to);
        if (executor == null) {
            throw new IllegalArgumentException("no cast of " + from + " to " + to);
        }
        return show(to, executor.cast(parse(from, value)));
    }

    private static String option(String name, String text) throws IllegalAccessException {
        for (Field field : CoreOptions.class.getFields()) {
            if (ConfigOption.class.isAssignableFrom(field.getType())) {
                ConfigOption<?> option = (ConfigOption<?>) field.get(null);
                if (option.key().equals(name)) {
                    Options options = new Options();
                    options.set(name, text);
                    return String.valueOf(options.get(option));
                }
            }
        }
        return "";
    }

    private static List<String> names(String text) {
        return text.isEmpty() ? new ArrayList<>() : Arrays.asList(text.split(","));
    }

    private static String create(String[] request) {
        List<DataField> fields = new ArrayList<>();
        for (String column : request[1].split("\\|")) {
            int at = column.indexOf(' ');
            fields.add(new DataField(fields.size(), column.substring(0, at), type(column.substring(at + 1))));
        }
        Map<String, String> options = new HashMap<>();
        for (int i = 4; i < request.length; i += 2) {
            options.put(request[i], request[i + 1]);
        }
        TableSchema schema = TableSchema.create(0, new Schema(fields, names(request[2]), names(request[3]), options, ""));
        SchemaValidation.validateTableSchema(schema);
        return JsonSerdeUtil.toJson(schema);
    }

    private static String alter(String[] request) throws Exception {
        TableSchema schema = JsonSerdeUtil.fromJson(request[1], TableSchema.class);
        boolean hasSnapshot = Boolean.parseBoolean(request[2]);
        List<SchemaChange> changes = new ArrayList<>();
        for (int i = 3; i < request.length; i++) {
            changes.add(change(request[i].split("\u0001", -1)));
        }
        TableSchema next = SchemaManager.generateTableSchema(
                schema, changes, new LazyField<>(() -> hasSnapshot), new LazyField<>(() -> Identifier.create("d", "t")));
        SchemaValidation.validateTableSchema(next);
        return JsonSerdeUtil.toJson(next);
    }

    private static SchemaChange change(String[] c) {
        switch (c[0]) {
            case "add": return SchemaChange.addColumn(c[1], type(c[2]), null, place(c[1], c[3]));
            case "drop": return SchemaChange.dropColumn(c[1]);
            case "rename": return SchemaChange.renameColumn(c[1], c[2]);
            case "type": return SchemaChange.updateColumnType(c[1], type(c[2]), true);
            case "nullable": return SchemaChange.updateColumnNullability(c[1], Boolean.parseBoolean(c[2]));
            case "comment": return SchemaChange.updateColumnComment(c[1], c[2]);
            case "move": return SchemaChange.updateColumnPosition(place(c[1], c[2]));
            default: throw new IllegalArgumentException("unknown change " + c[0]);
        }
    }

    /** Behind a column, first for no name, and null, which is last, for "-". */
    private static SchemaChange.Move place(String column, String after) {
        if (after.equals("-")) {
            return null;
        }
        return after.isEmpty() ? SchemaChange.Move.first(column) : SchemaChange.Move.after(column, after);
    }

    private static String aggregate(String[] request) {
        DataType type = type(request[2]);
        FieldAggregator function = FieldAggregatorFactory.create(type, "f", request[1], new CoreOptions(new Options()));
        Object state = null;
        for (int i = 3; i < request.length; i += 2) {
            Object value = parse(type, request[i + 1]);
            switch (request[i]) {
                case "+": state = function.agg(state, value); break;
                case "-": state = function.retract(state, value); break;
                default: state = function.aggReversed(state, value);
            }
        }
        return show(type, state);
    }

    private static String row(String[] request) throws Exception {
        int arity = (request.length - 1) / 2;
        DataType[] types = new DataType[arity];
        GenericRow row = new GenericRow(arity);
        for (int i = 0; i < arity; i++) {
            types[i] = type(request[1 + 2 * i]);
            row.setField(i, parse(types[i], request[2 + 2 * i]));
        }
        BinaryRow binary = new InternalRowSerializer(RowType.of(types)).toBinaryRow(row);
        return HexFormat.of().formatHex(SerializationUtils.serializeBinaryRow(binary)) + "|" + binary.hashCode();
    }

    private static String folder(DataType type, boolean legacy, String value) {
        RowType rowType = RowType.of(new DataType[] {type}, new String[] {"p"});
        InternalRowPartitionComputer computer =
                new InternalRowPartitionComputer("__DEFAULT_PARTITION__", rowType, new String[] {"p"}, legacy);
        return PartitionPathUtils.generatePartitionPath(computer.generatePartValues(GenericRow.of(parse(type, value))));
    }

    private static RowType column(DataType type) {
        return RowType.of(new DataType[] {type}, new String[] {"c"});
    }

    private static String build(String[] request) throws Exception {
        DataType type = type(request[1]);
        Options options = new Options();
        for (String option : names(request[3])) {
            int at = option.indexOf('=');
            options.set(option.substring(0, at), option.substring(at + 1));
        }
        FileIndexWriter index = FileIndexer.create(request[2], type, options).createWriter();
        for (int i = 4; i < request.length; i++) {
            index.writeRecord(parse(type, request[i]));
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (FileIndexFormat.Writer writer = FileIndexFormat.createWriter(out)) {
            Map<String, Map<String, byte[]>> indexes = new HashMap<>();
            indexes.put("c", Map.of(request[2], index.serializedBytes()));
            writer.writeColumnIndexes(indexes);
        }
        return HexFormat.of().formatHex(out.toByteArray());
    }

    private static String evaluate(String[] request) throws Exception {
        DataType type = type(request[1]);
        List<Object> literals = new ArrayList<>();
        for (int i = 4; i < request.length; i++) {
            literals.add(parse(type, request[i]));
        }
        Predicate predicate = predicate(new PredicateBuilder(column(type)), request[3], literals);
        try (FileIndexPredicate index = new FileIndexPredicate(HexFormat.of().parseHex(request[2]), column(type))) {
            FileIndexResult result = index.evaluate(predicate);
            if (result instanceof BitmapIndexResult) {
                List<String> rows = new ArrayList<>();
                ((BitmapIndexResult) result).get().iterator().forEachRemaining(row -> rows.add(String.valueOf(row)));
                return String.join(",", rows);
            }
            return result.remain() ? "all" : "none";
        }
    }

    private static Predicate predicate(PredicateBuilder builder, String operator, List<Object> literals) {
        switch (operator) {
            case "=": return builder.equal(0, literals.get(0));
            case "<>": return builder.notEqual(0, literals.get(0));
            case "<": return builder.lessThan(0, literals.get(0));
            case "<=": return builder.lessOrEqual(0, literals.get(0));
            case ">": return builder.greaterThan(0, literals.get(0));
            case ">=": return builder.greaterOrEqual(0, literals.get(0));
            case "in": return builder.in(0, literals);
            case "not in": return builder.notIn(0, literals);
            case "is null": return builder.isNull(0);
            case "is not null": return builder.isNotNull(0);
            default: throw new IllegalArgumentException("unknown operator " + operator);
        }
    }

    private static String bounds(String[] request) throws Exception {
        DataType type = type(request[1]);
        SimpleColStatsCollector collector = SimpleColStatsCollector.from("full").create();
        Serializer<Object> serializer = InternalSerializers.create(type);
        for (int i = 3; i < request.length; i++) {
            collector.collect(parse(type, request[i]), serializer);
        }
        SimpleColStats stats = SimpleColStatsCollector.from(request[2]).create().convert(collector.result());
        return show(type, stats.min()) + "\t" + show(type, stats.max()) + "\t" + stats.nullCount();
    }

    // --- values ---------------------------------------------------------------------------------

    private static Object parse(DataType type, String given) {
        if (given.equals("N")) {
            return null;
        }
        String text = given.substring(1);
        switch (type.getTypeRoot()) {
            case BOOLEAN: return Boolean.valueOf(text);
            case TINYINT: return Byte.valueOf(text);
            case SMALLINT: return Short.valueOf(text);
            case INTEGER:
            case DATE:
            case TIME_WITHOUT_TIME_ZONE: return Integer.valueOf(text);
            case BIGINT: return Long.valueOf(text);
            case FLOAT: return Float.intBitsToFloat((int) Long.parseLong(text));
            case DOUBLE: return Double.longBitsToDouble(Long.parseLong(text));
            case DECIMAL: {
                DecimalType decimal = (DecimalType) type;
                BigDecimal number = new BigDecimal(new BigInteger(text), decimal.getScale());
                return Decimal.fromBigDecimal(number, decimal.getPrecision(), decimal.getScale());
            }
            case CHAR:
            case VARCHAR: return BinaryString.fromString(text);
            case BINARY:
            case VARBINARY: return HexFormat.of().parseHex(text);
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE: {
                String[] parts = text.split(" ");
                return Timestamp.fromEpochMillis(Long.parseLong(parts[0]), Integer.parseInt(parts[1]));
            }
            default: throw new IllegalArgumentException("unknown type " + type);
        }
    }

    private static String show(DataType type, Object value) {
        if (value == null) {
            return "N";
        }
        switch (type.getTypeRoot()) {
            case FLOAT: return "V" + (Float.floatToIntBits((Float) value) & 0xffffffffL);
            case DOUBLE: return "V" + Double.doubleToLongBits((Double) value);
            case DECIMAL: return "V" + ((Decimal) value).toBigDecimal().unscaledValue();
            case BINARY:
            case VARBINARY: return "V" + HexFormat.of().formatHex((byte[]) value);
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE: {
                Timestamp at = (Timestamp) value;
                return "V" + at.getMillisecond() + " " + at.getNanoOfMillisecond();
            }
            default: return "V" + value;
        }
    }
}
