#!/usr/bin/env python3
"""Files of real servers: the corpus through nginx and through S3, byte for byte what the mount of the directory shows.

    far.py --bin PROGRAM [-v] CORPUS...

nginx (Debian) serves plain HTTP, a redirect and TLS with a certificate authority of its own. moto (PyPI) is S3, and checks the
signatures of requests; it heeds If-Match, and once more it is not told of that. s3s-fs (crates.io) is another S3 that does not
heed it; it is compiled for minutes, by `scripts/setup s3s`. fake-gcs-server is Google's storage, azurite (npm) that
of Azure, which checks signatures, too. What is not installed is skipped, with a note: `scripts/setup far` installs what it can.
"""
import argparse
import base64
import contextlib
import email.utils
import hashlib
import hmac
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

import mounting

PATIENCE = 30
BUCKET = "corpus"
TOOLS = pathlib.Path(__file__).resolve().parents[1] / "target/tools/bin"
# of which azurite makes no secret
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
# an empty directory to look for external files in, because beside a file far away none are looked for
NO_OTHERS = ["-o"]
results = {"passed": 0, "failed": 0, "verbose": False}


def check(name, good, why=""):
    results["passed" if good else "failed"] += 1
    if not good:
        print(f"FAIL {name}: {why}", flush=True)
    elif results["verbose"]:
        print(f"ok   {name}", flush=True)


def tool(name, what):
    found = shutil.which(name, path=f"{TOOLS}:{os.environ['PATH']}")
    if not found:
        print(f"NOTE {name} is not installed: {what}")
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serving(command, port, **more):
    """A server, once it takes connections."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more) as server:
        try:
            def answers():
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    return True
                return False
            if not mounting.wait_until(answers) or server.poll() is not None:
                raise RuntimeError(f"{command[0]} does not serve")
            yield
        finally:
            server.terminate()
            server.wait(PATIENCE)


def corpus_of(roots, directory):
    """The files of the corpus in one directory, each in one of its own, because names come again."""
    found = []
    for root in roots:
        for path in sorted(pathlib.Path(root).rglob("*.asdf")):
            if path.is_file() and not path.is_symlink():
                found.append(f"{len(found):04}/{path.name}")
                copy = directory / found[-1]
                copy.parent.mkdir()
                shutil.copyfile(path, copy)
    return found


def shown(member):
    """What is below a directory, but for the status, which tells of the mount: each file with its length and a sum."""
    out = {}
    for path in sorted(member.rglob("*")):
        name = str(path.relative_to(member))
        if name == "info/status":
            continue
        if path.is_symlink():
            out[name] = os.readlink(path)
        elif path.is_file():
            try:
                data = path.read_bytes()
                out[name] = (len(data), hashlib.sha256(data).hexdigest())
            except OSError as error:
                out[name] = error.strerror
    return out


def compare(name, program, far, options, environment, near, files):
    """Mounts what `far` names, and compares each member with that of the local mount."""
    with mounting.Mount(program, far, NO_OTHERS + options, environment) as mount:
        for file in files:
            got = shown(mount.dir / file)
            want = near[file]
            different = [key for key in got.keys() | want.keys() if got.get(key) != want.get(key)]
            check(f"{name} {file}", not different,
                  ", ".join(f"{key}: {got.get(key)}, near {want.get(key)}" for key in sorted(different)[:3]))


NGINX = """
daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log; {user}
events {{}}
http {{
    access_log off; gzip on; gzip_types *;
    client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c; uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;
    server {{
        listen 127.0.0.1:{port}; root {root};
        location /moved/ {{ rewrite ^/moved/(.*)$ /$1 redirect; }}
        location /whole/ {{ alias {root}/; max_ranges 0; }}
    }}
    server {{
        listen 127.0.0.1:{secure} ssl; root {root};
        ssl_certificate {dir}/server.pem; ssl_certificate_key {dir}/server.key;
    }}
}}
"""


def certificates(directory):
    """A certificate authority, and a certificate of it for localhost."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=PATIENCE)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "server.key", "-out", "server.csr",
            "-subj", "/CN=localhost")
    (directory / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "names", "-out", "server.pem")


def run(program, *arguments, **environment):
    """A command that only reads: exit status, and what it says."""
    done = subprocess.run([program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def with_nginx(program, directory, corpus, files, near):
    nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    if not nginx or not shutil.which("openssl"):
        print("NOTE nginx or openssl is not installed: HTTP and TLS are not tried")
        return
    place = directory / "nginx"
    place.mkdir()
    certificates(place)
    port, secure = free_port(), free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    (place / "nginx.conf").write_text(NGINX.format(dir=place, root=corpus, port=port, secure=secure, user=user))
    with serving([nginx, "-p", place, "-c", place / "nginx.conf", "-e", place / "error.log"], port):
        urls = directory / "urls"
        for way, many in [("", files), ("moved/", files[:20]), ("whole/", files[:20])]:
            for file in many:
                url = f"http://127.0.0.1:{port}/{way}{urllib.parse.quote(file)}"
                code, tree, said = run(program, "--tree", url)
                want = run(program, "--tree", str(corpus / file))
                check(f"nginx {way}{file} --tree", (code, tree) == want[:2], said)
        # in a mount of a list, each name can be there once
        distinct = {pathlib.Path(file).name: file for file in files}
        urls.write_text("".join(f"http://127.0.0.1:{port}/{urllib.parse.quote(file)}\n" for file in distinct.values()))
        compare("nginx", program, urls, ["--files-from"], {}, {name: near[file] for name, file in distinct.items()}, distinct)

        some = next(file for file in files if "tree.yaml" in near[file])
        url = f"https://localhost:{secure}/{urllib.parse.quote(some)}"
        want = run(program, "--tree", str(corpus / some))[:2]
        code, tree, said = run(program, "--tree", url, SSL_CERT_FILE=str(place / "ca.pem"))
        check("TLS with our authority", (code, tree) == want, said)
        code, _, said = run(program, "--tree", url)
        check("TLS with an authority that is not known", code == 11 and "certificate" in said.lower(), f"{code} {said}")
        code, _, said = run(program, "--tree", url.replace("localhost", "127.0.0.1"), SSL_CERT_FILE=str(place / "ca.pem"))
        check("TLS with another name", code == 11, f"{code} {said}")


def request(url, method="GET", data=None):
    # moto takes what has no type for a form
    made = urllib.request.Request(url, data, {"Content-Type": "application/octet-stream"}, method=method)
    with urllib.request.urlopen(made, timeout=PATIENCE) as answer:
        return answer.read().decode()


def between(text, tag):
    return text.split(f"<{tag}>")[1].split(f"</{tag}>")[0]


def user_of(endpoint):
    """A user who may read the bucket: key and secret."""
    def call(**fields):
        fields["Version"] = "2010-05-08"
        headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=x"}
        made = urllib.request.Request(endpoint, urllib.parse.urlencode(fields).encode(), headers)
        with urllib.request.urlopen(made, timeout=PATIENCE) as answer:
            return answer.read().decode()
    call(Action="CreateUser", UserName="astronomer")
    key = call(Action="CreateAccessKey", UserName="astronomer")
    policy = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject","s3:ListBucket"],"Resource":"*"}]}'
    call(Action="PutUserPolicy", UserName="astronomer", PolicyName="read", PolicyDocument=policy)
    return between(key, "AccessKeyId"), between(key, "SecretAccessKey")


def with_s3(program, directory, corpus, files, near):
    moto = pathlib.Path(sys.executable).with_name("moto_server")
    if not moto.exists():
        print("NOTE moto is not installed: S3 is not tried")
        return
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    # so many requests are served without a look at who makes them
    environment = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "1000000"}
    with serving([moto, "-H", "127.0.0.1", "-p", str(port)], port, env=environment):
        request(f"{endpoint}/{BUCKET}", "PUT")
        for file in files:
            request(f"{endpoint}/{BUCKET}/visit/{urllib.parse.quote(file)}", "PUT", (corpus / file).read_bytes())
        key, secret = user_of(endpoint)
        request(f"{endpoint}/moto-api/reset-auth", "POST", b"0")
        # nothing of the user who runs this
        common = {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "HOME": str(directory)}
        keys = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
        url = f"s3://{BUCKET}/visit/"
        compare("s3", program, url, [], {**common, **keys}, near, files)

        some = url + files[0]
        want = run(program, "--tree", str(corpus / files[0]))[:2]
        profile = directory / ".aws"
        profile.mkdir()
        (profile / "credentials").write_text(f"[survey]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
        code, tree, said = run(program, "--tree", some, **common, AWS_PROFILE="survey")
        check("keys of a profile", (code, tree) == want, said)
        for name, wrong in [("a wrong secret", {**keys, "AWS_SECRET_ACCESS_KEY": "wrong"}), ("no keys", {"AWS_SKIP_SIGNATURE": "true"})]:
            code, _, said = run(program, "--tree", some, **common, **wrong)
            check(name, code == 11 and "403" in said and secret not in said and "wrong" not in said, f"{code} {said}")


# moto, which is not told of If-Match: so some servers of S3 are.
HEEDLESS = """
import sys
from moto.moto_server import werkzeug_app as moto
from werkzeug.serving import run_simple
heedful = moto.DomainDispatcherApplication(moto.create_backend_app)
def heedless(environ, start):
    environ.pop("HTTP_IF_MATCH", None)
    return heedful(environ, start)
run_simple("127.0.0.1", int(sys.argv[1]), heedless, threaded=True, request_handler=moto.MotoRequestHandler)
"""


def with_heedless_s3(program, directory, corpus, files, near):
    if not pathlib.Path(sys.executable).with_name("moto_server").exists():
        return
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    environment = {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "HOME": str(directory),
                   "AWS_ACCESS_KEY_ID": "AKTEST", "AWS_SECRET_ACCESS_KEY": "SKTEST"}
    with serving([sys.executable, "-c", HEEDLESS, str(port)], port, env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "1000000"}):
        request(f"{endpoint}/{BUCKET}", "PUT")
        for file in files:
            request(f"{endpoint}/{BUCKET}/visit/{urllib.parse.quote(file)}", "PUT", (corpus / file).read_bytes())
        compare("s3 without If-Match", program, f"s3://{BUCKET}/visit/", [], environment, near, files)


def with_s3s(program, directory, corpus, files, near):
    server = tool("s3s-fs", "S3 is tried with moto only")
    if not server:
        return
    port = free_port()
    keys = {"AWS_ACCESS_KEY_ID": "AKTEST", "AWS_SECRET_ACCESS_KEY": "SKTEST"}
    common = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "HOME": str(directory)}
    command = [server, "--host", "127.0.0.1", "--port", str(port), "--access-key", "AKTEST", "--secret-key", "SKTEST", corpus.parent]
    with serving(command, port):
        url = f"s3://{corpus.name}/"
        compare("s3s", program, url, [], {**common, **keys}, near, files)
        wrong = {**keys, "AWS_SECRET_ACCESS_KEY": "wrong"}
        code, _, said = run(program, "--tree", url + files[0], **common, **wrong)
        check("s3s: a wrong secret", code == 11 and "403" in said and "wrong" not in said, f"{code} {said}")


def with_google(program, directory, corpus, files, near):
    server = tool("fake-gcs-server", "gs:// is not tried")
    if not server:
        return
    port = free_port()
    host = f"127.0.0.1:{port}"
    # it takes each directory in there for a bucket
    data = directory / "google"
    shutil.copytree(corpus, data / BUCKET / "visit")
    command = [server, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", host, "-backend", "memory", "-data", data]
    environment = {"GOOGLE_BASE_URL": f"http://{host}", "GOOGLE_ALLOW_HTTP": "true", "HOME": str(directory)}
    with serving(command, port):
        compare("google", program, f"gs://{BUCKET}/visit/", ["-o", "no-sign-request"], environment, near, files)


def put_in_azure(endpoint, path, query="", data=b"", **headers):
    """Puts a container or a blob there, signed with the key of the account."""
    headers = {"Content-Type": "application/octet-stream", "x-ms-date": email.utils.formatdate(usegmt=True),
               "x-ms-version": "2021-08-06", **headers}
    own = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers) if name.startswith("x-ms-"))
    asked = "".join(f"\n{name}:{value}" for name, value in sorted(urllib.parse.parse_qsl(query)))
    length = len(data) or ""
    signed = f"PUT\n\n\n{length}\n\n{headers['Content-Type']}" + 7 * "\n" + f"{own}/{ACCOUNT}/{ACCOUNT}{path}{asked}"
    signature = hmac.new(base64.b64decode(ACCOUNT_KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
    made = urllib.request.Request(f"{endpoint}/{ACCOUNT}{path}?{query}", data, headers, method="PUT")
    with urllib.request.urlopen(made, timeout=PATIENCE):
        pass


def with_azure(program, directory, corpus, files, near):
    server = tool("azurite-blob", "az:// is not tried")
    if not server:
        return
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [server, "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location", directory / "azure",
               "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    environment = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": endpoint, "AZURE_ALLOW_HTTP": "true",
                   "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY, "HOME": str(directory)}
    with serving(command, port):
        put_in_azure(endpoint, f"/{BUCKET}", "restype=container")
        for file in files:
            path = f"/{BUCKET}/visit/{urllib.parse.quote(file)}"
            put_in_azure(endpoint, path, data=(corpus / file).read_bytes(), **{"x-ms-blob-type": "BlockBlob"})
        url = f"az://{BUCKET}/visit/"
        compare("azure", program, url, [], environment, near, files)
        wrong = {"AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(b"wrong").decode()}
        code, _, said = run(program, "--tree", url + files[0], **{**environment, **wrong})
        check("azure: a wrong key", code == 11 and "403" in said and ACCOUNT_KEY not in said, f"{code} {said}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("-v", action="store_true", help="name each case that passes")
    parser.add_argument("corpus", nargs="+")
    arguments = parser.parse_args()
    program = str(pathlib.Path(arguments.bin).resolve())
    results["verbose"] = arguments.v
    with tempfile.TemporaryDirectory(prefix="far-") as place:
        directory = pathlib.Path(place)
        corpus = directory / "corpus"
        corpus.mkdir()
        (directory / "none").mkdir()
        NO_OTHERS.append(f"allow_external={directory / 'none'}")
        # nginx may serve as another user
        directory.chmod(0o755)
        files = corpus_of(arguments.corpus, corpus)
        with mounting.Mount(program, corpus, ["-r", *NO_OTHERS]) as mount:
            near = {file: shown(mount.dir / file) for file in files}
        with_nginx(program, directory, corpus, files, near)
        with_s3(program, directory, corpus, files, near)
        with_heedless_s3(program, directory, corpus, files, near)
        with_s3s(program, directory, corpus, files, near)
        with_google(program, directory, corpus, files, near)
        with_azure(program, directory, corpus, files, near)
    print(f"{results['passed']} passed, {results['failed']} failed")
    return results["failed"] > 0


if __name__ == "__main__":
    sys.exit(main())
