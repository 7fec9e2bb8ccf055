"""A small server with the part of Hugging Face's HTTP interface that uploads and downloads of models need."""

import base64
import contextlib
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub(ThreadingHTTPServer):
    """Server of models in memory on 127.0.0.1; `requests` lists what was asked, with its token."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos, self.private, self.requests, self.messages = {}, {}, [], []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def commit(self, repo):
        state = json.dumps({name: hashlib.sha1(data).hexdigest() for name, data in self.repos[repo].items()})
        return hashlib.sha1(state.encode()).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments): ...

    def answer(self, code, data=b"", headers=None, length=None):
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(code)
        for name, value in {"Content-Length": length or len(data), **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.path, self.headers.get("Authorization")))
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts == ["api", "validate-yaml"]:
            return self.answer(200, {"errors": [], "warnings": []})
        if self.headers.get("Authorization") != "Bearer hf_test":
            return self.answer(401, {"error": "Invalid credentials"})
        if parts == ["api", "repos", "create"]:
            asked = json.loads(body)
            repo = f"{asked.get('organization') or 'me'}/{asked['name']}"
            self.server.private[repo] = asked.get("visibility", asked.get("private"))
            self.server.repos.setdefault(repo, {})
            return self.answer(200, {"url": f"{self.server.url}/{repo}", "name": repo, "id": repo})
        repo = "/".join(parts[2:4])
        if parts[4] == "preupload":
            files = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in json.loads(body)["files"]
            ]
            return self.answer(200, {"files": files})
        assert parts[4] == "commit", self.path
        for line in body.decode().splitlines():
            entry = json.loads(line)
            if entry["key"] == "header":
                self.server.messages.append(entry["value"]["summary"])
            if entry["key"] == "file":
                self.server.repos[repo][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        oid = self.server.commit(repo)
        return self.answer(
            200, {"success": True, "commitOid": oid, "commitUrl": f"{self.server.url}/{repo}/commit/{oid}"}
        )

    def do_GET(self):
        self.server.requests.append((self.path, self.headers.get("Authorization")))
        owner, name, verb, _, *path = self.path.partition("?")[0].strip("/").split("/")
        files = self.server.repos.get(f"{owner}/{name}")
        if verb != "resolve" or files is None or "/".join(path) not in files:
            code = "RepoNotFound" if files is None else "EntryNotFound"
            return self.answer(404, b"", {"X-Error-Code": code, "X-Error-Message": "not found"})
        data = files["/".join(path)]
        headers = {
            "ETag": f'"{hashlib.sha1(data).hexdigest()}"',
            "X-Repo-Commit": self.server.commit(f"{owner}/{name}"),
        }
        return self.answer(200, data, headers, length=len(data))

    do_HEAD = do_GET  # noqa: N815  # the names that http.server calls


@contextlib.contextmanager
def running_hub():
    """Context with a running server, which ends afterwards."""
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
