// The JDK's `HttpClient` in its default version, which asks for HTTP/2 with every first request:
// each answer is the one that HTTP/1.1 gets, with bodies of a known length and in chunks.

import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

public class AskHttp {
    static final String SERVER = System.getenv("ATTENDANT_URL");
    static final String EMBEDDINGS = "{\"model\": \"tiny-embed\", \"input\": [\"win a prize\", \"caf\u00e9\"]}";
    static final String CHAT = "{\"model\": \"tiny-chat\", \"temperature\": 0, \"max_tokens\": 12, "
            + "\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]";
    static final String TENSORS = "{\"inputs\": ["
            + "{\"name\": \"INPUT0\", \"datatype\": \"INT32\", \"shape\": [1, 16], \"data\": [" + sixteen() + "]}, "
            + "{\"name\": \"INPUT1\", \"datatype\": \"INT32\", \"shape\": [1, 16], \"data\": [" + sixteen() + "]}]}";
    static final Pattern CONTENT = Pattern.compile("\"content\":\"((?:[^\"\\\\]|\\\\.)*)\"");

    static String sixteen() {
        return "3, ".repeat(15) + "3";
    }

    static HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create(SERVER + path)).header("content-type", "application/json");
    }

    static HttpRequest post(String path, String body) {
        return request(path).POST(BodyPublishers.ofString(body)).build();
    }

    static HttpRequest inChunks(String path, String body) {
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        return request(path).POST(BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(bytes))).build();
    }

    static void check(boolean holds, String claim) {
        if (!holds) {
            throw new AssertionError(claim);
        }
    }

    static String text(HttpClient client, HttpRequest request) throws Exception {
        HttpResponse<String> response = client.send(request, BodyHandlers.ofString());
        check(response.statusCode() == 200, request.uri() + ": " + response.statusCode() + " " + response.body());
        return response.body();
    }

    static String contents(String answer) {
        Matcher matcher = CONTENT.matcher(answer);
        StringBuilder joined = new StringBuilder();
        while (matcher.find()) {
            joined.append(matcher.group(1));
        }
        return joined.toString();
    }

    public static void main(String[] arguments) throws Exception {
        HttpClient plain = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        for (String[] each : new String[][] {{"/v1/embeddings", EMBEDDINGS}, {"/v2/models/simple/infer", TENSORS}}) {
            String expected = text(plain, post(each[0], each[1]));
            // A new client asks to change the protocol with its first request; a second one follows
            // on the same connection.
            HttpClient client = HttpClient.newHttpClient();
            for (int i = 0; i < 2; i++) {
                check(text(client, post(each[0], each[1])).equals(expected), "another answer: " + each[0]);
                check(text(client, inChunks(each[0], each[1])).equals(expected), "in chunks: " + each[0]);
            }
            check(text(HttpClient.newHttpClient(), inChunks(each[0], each[1])).equals(expected), "chunks first");
        }
        HttpClient client = HttpClient.newHttpClient();
        check(text(client, request("/v1/models").GET().build()).contains("tiny-embed"), "the list of models");
        String whole = contents(text(client, post("/v1/chat/completions", CHAT + "}")));
        check(!whole.isEmpty(), "an answer of a chat");
        HttpResponse<java.util.stream.Stream<String>> lines = HttpClient.newHttpClient()
                .send(post("/v1/chat/completions", CHAT + ", \"stream\": true}"), BodyHandlers.ofLines());
        check(lines.statusCode() == 200, "a stream of a chat");
        String streamed = contents(lines.body().collect(Collectors.joining("\n")));
        check(streamed.equals(whole), "the stream is another text: " + streamed);
        HttpRequest absent = post("/v1/embeddings", EMBEDDINGS.replace("tiny-embed", "absent"));
        check(HttpClient.newHttpClient().send(absent, BodyHandlers.ofString()).statusCode() == 404, "an absent model");
        List<CompletableFuture<HttpResponse<String>>> running = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            running.add(client.sendAsync(post("/v1/embeddings", EMBEDDINGS), BodyHandlers.ofString()));
        }
        for (CompletableFuture<HttpResponse<String>> each : running) {
            check(each.get().statusCode() == 200, "one of 20 calls at once");
        }
    }
}
