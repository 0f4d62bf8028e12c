# SPDX-License-Identifier: Apache-2.0
"""As much of S3 as small objects need, in memory: PUT, GET, DELETE, lists. Requests must be signed;
whether they are signed well is tested with a real server (test_remote_s3.sh)."""
import hashlib
import http.server
import threading
import urllib.parse
from xml.sax.saxutils import escape


class S3Stub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects = {}  # "/BUCKET/KEY": bytes
    refuse = False

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address(self):
        """Path and query; None: the request was refused."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        sign = self.headers.get("Authorization", "")
        if S3Stub.refuse or not sign.startswith("AWS4-HMAC-SHA256 Credential=key/"):
            self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return None
        url = urllib.parse.urlsplit(self.path)
        return urllib.parse.unquote(url.path), urllib.parse.parse_qs(url.query), body

    def do_PUT(self):
        at = self.address()
        if at:
            S3Stub.objects[at[0]] = at[2]
            self.answer(200, ETag=f'"{hashlib.md5(at[2]).hexdigest()}"')

    def do_GET(self):
        at = self.address()
        if not at:
            return
        path, query, _ = at
        if "list-type" in query:
            bucket, prefix = path.rstrip("/") + "/", query.get("prefix", [""])[0]
            found = [(k[len(bucket):], len(v)) for k, v in sorted(S3Stub.objects.items())
                     if k.startswith(bucket + prefix)]
            rows = "".join(f"<Contents><Key>{escape(k)}</Key><Size>{n}</Size></Contents>"
                           for k, n in found)
            self.answer(200, f"<ListBucketResult>{rows}<IsTruncated>false</IsTruncated>"
                        "</ListBucketResult>".encode())
        elif path in S3Stub.objects:
            data = S3Stub.objects[path]
            self.answer(200, data, ETag=f'"{hashlib.md5(data).hexdigest()}"')
        else:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    do_HEAD = do_GET

    def do_DELETE(self):
        at = self.address()
        if at:
            S3Stub.objects.pop(at[0], None)
            self.answer(204)

    def log_message(self, *_):
        pass

    @classmethod
    def start(cls):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), cls)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server
