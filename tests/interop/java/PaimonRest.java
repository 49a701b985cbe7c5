import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.options.Options;
import org.apache.paimon.rest.RESTCatalog;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.Instant;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.view.View;
import org.apache.paimon.view.ViewChange;
import org.apache.paimon.view.ViewImpl;

/**
 * Apache Paimon's client of a REST catalog: answers requests on standard input until it ends.
 *
 * <p>A request is a line of percent-encoded fields joined by tabs; tables have a BIGINT and a STRING column.
 *
 * <pre>
 *   open     URI WAREHOUSE TOKEN                a client for what follows
 *   read     TABLE                              the numbers of the first column, in order
 *   append   TABLE NUMBER...                    commits one row for each
 *   tag      TABLE NAME                         of the latest snapshot
 *   branch   TABLE NAME TAG                     creates a branch; the tag may be empty
 *   rename   TABLE NAME NEW, delete TABLE NAME, forward TABLE NAME, branches TABLE
 *   rollback TABLE snapshot|tag NAME
 *   view     NAME QUERY                         creates a view with one BIGINT column, id
 *   query    NAME DIALECT                       the view's query and the names of its columns
 *   dialect  NAME add|update|drop DIALECT QUERY
 *   views    DATABASE, drop NAME
 * </pre>
 *
 * <p>The answer is one line, {"value":"..."} or {"refused":"..."}, percent-encoded.
 */
public class PaimonRest {
    private static Catalog catalog;

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

    private static String answer(String[] r) throws Exception {
        switch (r[0]) {
            case "open": return open(r[1], r[2], r[3]);
            case "views": return sorted(catalog.listViews(r[1]));
            case "view": return view(name(r[1]), r[2]);
            case "query": return query(catalog.getView(name(r[1])), r[2]);
            case "dialect": catalog.alterView(name(r[1]), Collections.singletonList(change(r)), false); return "";
            case "drop": catalog.dropView(name(r[1]), false); return "";
            default: return answer((FileStoreTable) catalog.getTable(name(r[1])), r);
        }
    }

    private static String answer(FileStoreTable table, String[] r) throws Exception {
        switch (r[0]) {
            case "read": return read(table);
            case "append": append(table, r); return "";
            case "tag": table.createTag(r[2]); return "";
            case "branch":
                if (r[3].isEmpty()) {
                    table.createBranch(r[2]);
                } else {
                    table.createBranch(r[2], r[3]);
                }
                return "";
            case "rename": table.renameBranch(r[2], r[3]); return "";
            case "delete": table.deleteBranch(r[2]); return "";
            case "forward": table.fastForward(r[2]); return "";
            case "branches": return sorted(table.branchManager().branches());
            case "rollback":
                if (r[2].equals("tag")) {
                    table.rollbackTo(r[3]);
                } else {
                    table.rollbackTo(Long.parseLong(r[3]));
                }
                return "";
            default: throw new IllegalArgumentException("unknown request " + r[0]);
        }
    }

    private static Identifier name(String text) {
        return Identifier.fromString(text);
    }

    private static String sorted(List<String> names) {
        return names.stream().sorted().collect(Collectors.joining(","));
    }

    private static String open(String uri, String warehouse, String token) {
        Options options = new Options();
        options.set("uri", uri);
        options.set("warehouse", warehouse);
        options.set("token.provider", "bear");
        options.set("token", token);
        catalog = new RESTCatalog(CatalogContext.create(options));
        return "";
    }

    private static String read(FileStoreTable table) throws Exception {
        ReadBuilder builder = table.newReadBuilder();
        List<Long> out = new ArrayList<>();
        builder.newRead().createReader(builder.newScan().plan()).forEachRemaining(row -> out.add(row.getLong(0)));
        return out.stream().sorted().map(String::valueOf).collect(Collectors.joining(","));
    }

    private static void append(FileStoreTable table, String[] r) throws Exception {
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        try (BatchTableWrite write = builder.newWrite(); BatchTableCommit commit = builder.newCommit()) {
            for (String number : Arrays.asList(r).subList(2, r.length)) {
                write.write(GenericRow.of(Long.parseLong(number), BinaryString.fromString("java")));
            }
            commit.commit(write.prepareCommit());
        }
    }

    private static String view(Identifier name, String query) throws Exception {
        List<DataField> fields = Collections.singletonList(new DataField(0, "id", DataTypes.BIGINT()));
        Map<String, String> dialects = Collections.singletonMap("spark", query);
        catalog.createView(name, new ViewImpl(name, fields, query, dialects, "from Java", Collections.emptyMap()), false);
        return "";
    }

    private static String query(View view, String dialect) {
        return view.query(dialect) + "|" + String.join(",", view.rowType().getFieldNames());
    }

    private static ViewChange change(String[] r) {
        switch (r[2]) {
            case "add": return ViewChange.addDialect(r[3], r[4]);
            case "update": return ViewChange.updateDialect(r[3], r[4]);
            default: return ViewChange.dropDialect(r[3]);
        }
    }
}
