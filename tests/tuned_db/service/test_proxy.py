"""The service behind a real proxy, with the proxy's files of `deploy/`; skips where there is none.

`NGINX` and `CADDY` name programs that are not on the path.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.tuned_db.tuned_samples import record

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

import httpx
import uvicorn

from tests.tuned_db.service.service_runs import Served, body, serving
from tuned_db import Store
from tuned_db.service.connections import protocol
from tuned_db.service.guard import RequestLimits

DEPLOY = Path(__file__).parents[3] / "deploy"
NAME = "tuned.example.org"
PROXY = "127.0.0.1"
Proxy = tuple[int, ssl.SSLContext]
"""The port of a proxy that speaks TLS, and what believes its certificate."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((PROXY, 0))
        return int(probe.getsockname()[1])


def nginx_files(folder: Path, port: int, service: int) -> list[str]:
    site = (DEPLOY / "nginx.conf").read_text()
    for old, new in {
        "listen 443": f"listen {PROXY}:{port}",
        "    listen [::]:443 ssl;\n": "",
        "    listen 80;\n    listen [::]:80;\n": f"    listen {PROXY}:{free_port()};\n",
        f"/etc/letsencrypt/live/{NAME}/fullchain.pem": f"{folder}/cert.pem",
        f"/etc/letsencrypt/live/{NAME}/privkey.pem": f"{folder}/key.pem",
        "127.0.0.1:8787": f"{PROXY}:{service}",
        "client_header_timeout 10s": "client_header_timeout 5s",
    }.items():
        assert old in site
        site = site.replace(old, new)
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "site.conf").write_text(site)
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/log; events {{}}\n"
        f"http {{ access_log off; {temporary} include {folder}/site.conf; }}\n"
    )
    return ["-e", f"{folder}/log", "-p", str(folder), "-c", f"{folder}/nginx.conf"]


def caddy_files(folder: Path, port: int, service: int) -> list[str]:
    text = (DEPLOY / "Caddyfile").read_text()
    for old, new in {
        f"\n{NAME} {{": f"\nhttps://{NAME}:{port} {{\n\ttls {folder}/cert.pem {folder}/key.pem",
        "\n{\n": "\n{\n\tadmin off\n\tauto_https disable_redirects\n",
        "127.0.0.1:8787": f"{PROXY}:{service}",
        "read_header 10s": "read_header 5s",
    }.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "Caddyfile").write_text(text)
    return ["run", "--adapter", "caddyfile", "--config", f"{folder}/Caddyfile"]


Files = Callable[[Path, int, int], list[str]]
PROXIES: dict[str, Files] = {"nginx": nginx_files, "caddy": caddy_files}


@pytest.fixture(params=sorted(PROXIES))
def proxy(request: pytest.FixtureRequest) -> tuple[str, Files]:
    """A proxy's program, and what writes its files."""
    found = os.environ.get(request.param.upper()) or shutil.which(request.param)
    if found is None:
        pytest.skip(f"no {request.param} here")
    return found, PROXIES[request.param]


@contextmanager
def before(proxy: tuple[str, Files], served: Served, folder: Path) -> Iterator[Proxy]:
    """Run a proxy before a service."""
    program, files = proxy
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    made += ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    made += ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"]
    subprocess.run(made, check=True, capture_output=True)
    port, service = free_port(), httpx.URL(served.url).port or 0
    with (folder / "said").open("wb") as said:
        running = subprocess.Popen(
            [program, *files(folder, port, service)],
            stdout=said,
            stderr=said,
            env=os.environ | {"HOME": str(folder)},
        )
        try:
            for _ in range(300):
                with socket.socket() as probe:
                    if probe.connect_ex((PROXY, port)) == 0:
                        break
                assert running.poll() is None, (folder / "said").read_text()
                time.sleep(0.1)
            yield port, ssl.create_default_context(cafile=f"{folder}/cert.pem")
        finally:
            running.terminate()
            running.wait()


def client(proxy: Proxy, address: str) -> httpx.Client:
    """Return a client that comes from an address of this machine."""
    port, trust = proxy
    transport = httpx.HTTPTransport(local_address=address, verify=trust)
    return httpx.Client(
        base_url=f"https://{PROXY}:{port}",
        transport=transport,
        timeout=30,
        headers={"Host": NAME},
    )


def get(web: httpx.Client, path: str, **headers: str) -> httpx.Response:
    return web.get(path, headers=headers, extensions={"sni_hostname": NAME})


def test_a_real_proxy_tells_who_asks_and_bounds_what_is_sent(
    proxy: tuple[str, Files],
    shelf: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "oclgen.access")
    settings = partial(
        uvicorn.Config,
        http=protocol(100, [PROXY]),
        proxy_headers=True,
        forwarded_allow_ips=[PROXY],
    )
    monkeypatch.setattr(uvicorn, "Config", settings)
    limits = RequestLimits(
        reads_per_s=0.01, burst_s=300.0, writes_per_s=1e4, request_s=1e9
    )  # three
    with serving(shelf, limits) as served, before(proxy, served, tmp_path) as running:
        with client(running, "127.0.0.2") as one, client(running, "127.0.0.3") as other:
            forged = [get(one, "/", **{"X-Forwarded-For": f"10.0.0.{n}"}) for n in range(4)]
            assert [answer.status_code for answer in forged] == [200, 200, 200, 429]
            assert get(other, "/").status_code == 200
            assert forged[0].headers["strict-transport-security"].startswith("max-age=")
            sent = partial(other.post, "/api/v1/records", extensions={"sni_hostname": NAME})
            token = {"Authorization": f"Bearer {served.token}"}
            assert sent(content=body(record()), headers=token).json()["improved"] == 1
            assert sent(content=b"x" * (9 << 20), headers=token).status_code == 413
        raw = socket.create_connection((PROXY, running[0]), timeout=30)
        with raw, running[1].wrap_socket(raw, server_hostname=NAME) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nHost: ")
            assert b"200" not in slow.recv(100)  # it is told, or closed
    lines = [json.loads(one.message) for one in caplog.records if one.name == "oclgen.access"]
    assert [one["address"] for one in lines[:5]] == ["127.0.0.2"] * 4 + ["127.0.0.3"]
    assert [one["token"] for one in lines if one["method"] == "POST"][:1] == ["alice"]
