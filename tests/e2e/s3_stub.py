# SPDX-License-Identifier: Apache-2.0
"""As much of S3 as small objects need, in memory: PUT, GET, DELETE, lists. Requests must be signed;
whether they are signed well is tested with a real server (test_remote_s3.sh). A subclass may fail
on purpose, or be a plain HTTP server."""
import hashlib
import http.server
import socket
import threading
import urllib.parse
from xml.sax.saxutils import escape


class S3Stub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects = {}  # "/BUCKET/KEY": bytes
    refuse = False
    signed = True
    changes = threading.RLock()

    def fault(self):
        """What goes wrong with this request: a status, "cut" in the middle, "lost": the answer to
        what was done; None: nothing."""
        return None

    def changed(self, path):
        """An object was put or deleted."""

    def cut(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address(self):
        """Path and query; None: the request was refused."""
        nbytes = int(self.headers.get("Content-Length") or 0)
        self.wrong = self.fault()
        if self.wrong == "cut" and self.command == "PUT":
            self.rfile.read(nbytes // 2)
            self.cut()
            return None
        body = self.rfile.read(nbytes)
        if isinstance(self.wrong, int):
            self.answer(self.wrong, b"<Error><Code>SlowDown</Code></Error>")
            return None
        sign = self.headers.get("Authorization", "")
        known = sign.startswith("AWS4-HMAC-SHA256 Credential=key/") or not self.signed
        if S3Stub.refuse or not known:
            self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return None
        url = urllib.parse.urlsplit(self.path)
        return urllib.parse.unquote(url.path), urllib.parse.parse_qs(url.query), body

    def do_PUT(self):
        at = self.address()
        if not at:
            return
        with self.changes:
            self.objects[at[0]] = at[2]
            self.changed(at[0])
        if self.wrong == "lost":
            self.cut()
        else:
            self.answer(200, ETag=f'"{hashlib.md5(at[2]).hexdigest()}"')

    def do_GET(self):
        at = self.address()
        if not at:
            return
        path, query, _ = at
        if "list-type" in query and self.signed:
            bucket, prefix = path.rstrip("/") + "/", query.get("prefix", [""])[0]
            found = [(k[len(bucket):], len(v)) for k, v in sorted(self.objects.items())
                     if k.startswith(bucket + prefix)]
            rows = "".join(f"<Contents><Key>{escape(k)}</Key><Size>{n}</Size></Contents>"
                           for k, n in found)
            self.answer(200, f"<ListBucketResult>{rows}<IsTruncated>false</IsTruncated>"
                        "</ListBucketResult>".encode())
        elif path in self.objects:
            data = self.objects[path]
            etag = f'"{hashlib.md5(data).hexdigest()}"'
            if self.wrong:  # "cut": its first half comes
                self.send_response(200)
                self.send_header("ETag", etag)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[:len(data) // 2])
                self.cut()
            else:
                self.answer(200, data, ETag=etag)
        else:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    do_HEAD = do_GET

    def do_DELETE(self):
        at = self.address()
        if at:
            with self.changes:
                self.objects.pop(at[0], None)
                self.changed(at[0])
            self.answer(204)

    def log_message(self, *_):
        pass

    @classmethod
    def start(cls, port=0):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), cls)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server
