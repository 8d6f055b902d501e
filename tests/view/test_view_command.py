"""tokenreel view: one line with the address, the end by Ctrl-C, and what is told to wrong use."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from tests.view.looking import write_recipe

from tokenreel.cli.main import main
from tokenreel.view.guards import HEADERS
from tokenreel.view.serve import address_of, bound_socket, door_to


def test_a_page_is_served_until_it_is_interrupted(recipe: Path) -> None:
    command = [sys.executable, "-m", "tokenreel", "view", str(recipe), "--no-browser"]
    served = subprocess.Popen(
        [*command, "--step", "7"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SSH_CONNECTION": "there here"},
    )
    try:
        assert served.stdout is not None
        address = served.stdout.readline().strip()
        page, _, state = address.partition("#")
        assert state == "step=7"
        host, token = httpx.URL(page).host, httpx.URL(page).path.strip("/")
        assert host == "127.0.0.1"
        assert len(token) >= 22  # 16 random bytes
        answer = httpx.get(f"{page}api/target")
        assert answer.json()["first_step"] == 7
        assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]
        assert "server" not in answer.headers
        assert httpx.get(f"{page}static/main.js").status_code == 200
        assert httpx.get(page.replace(token, "guess")).status_code == 404
        assert httpx.get(f"{page}api/target", headers={"host": "evil.example"}).status_code == 421
        served.send_signal(signal.SIGINT)
        out, err = served.communicate(timeout=30)
    finally:
        served.kill()
        served.wait()
    assert served.returncode == 130
    assert out == ""
    forward, *rest = err.splitlines()
    assert f"ssh -L {httpx.URL(page).port}:127.0.0.1:{httpx.URL(page).port}" in forward
    assert rest == ["Ctrl-C ends it", "interrupted"]


def test_the_browser_is_led_to_the_page_by_a_file_that_its_user_alone_reads(
    recipe: Path, tmp_path: Path
) -> None:
    """Other users of the machine see the arguments of the browser, and reach its loopback."""
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    file = "$(echo $1 | sed s,^file://,,)"
    told = f'echo "$@"; stat -c %a "{file}"; cat "{file}"'
    browser.write_text(f"#!/bin/sh\n({told}) > {seen}.part\nmv {seen}.part {seen}\n")
    browser.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-m", "tokenreel", "view", str(recipe), "--step", "7"],
        env={**os.environ, "BROWSER": str(browser), "DISPLAY": ":9"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as served:
        assert served.stdout is not None
        address = served.stdout.readline().strip()
        stop = time.monotonic() + 10
        while not seen.exists() and time.monotonic() < stop:
            time.sleep(0.05)
        served.terminate()
    arguments, mode, page = seen.read_text().split("\n", 2)
    token = httpx.URL(address).path.strip("/")
    assert len(token) >= 22
    assert token not in arguments
    assert mode == "600"
    assert f'url={address}"' in page
    assert not Path(arguments.removeprefix("file://")).exists()


def test_a_file_that_leads_to_an_address_says_nothing_but_that() -> None:
    with door_to('http://127.0.0.1:1/t/#"><script>') as door:
        file = Path(httpx.URL(door).path)
        assert file.stat().st_mode & 0o777 == 0o600
        assert "url=http://127.0.0.1:1/t/#&quot;&gt;&lt;script&gt;" in file.read_text()
    assert not file.exists()
    with door_to("http://127.0.0.1:1/t/") as door:
        Path(httpx.URL(door).path).unlink()  # as systems do that clear their temporary folder


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    assert main(["view", *words, "--no-browser"]) == code
    return capsys.readouterr().err


def test_a_port_in_use_is_told_with_the_remedy(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with bound_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        said = told(capsys, str(recipe), "--port", str(port))
    assert f"cannot serve at 127.0.0.1 port {port}: Address already in use" in said
    assert "choose another port" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "70000"], "bad --port (expected 0 to 65,535, got 70,000)"),
        (["--host", "no.such.host.invalid"], "no such host"),
        (["--step", "40"], "the run ends after 40 steps"),
        (["--step", "-1"], "bad --step (expected >= 0, got -1)"),
        (["--rows", "0:4"], "rows are chosen for an export alone; name the file: --export …"),
        (["--export", "page.txt"], "expected a name that ends in .html"),
        (["--export", "no/such/folder/page.html"], "there is no such folder"),
        (["--export", "a.html", "--rows", "4:4"], "bad --rows (expected 1 to 64 of them, got 0)"),
        (["--export", "a.html", "--rows", "one"], "bad --rows (expected START:STOP or one number"),
        (["--export", "a.html", "--rows", "6:9"], "no such rows (expected below 6, got 6)"),
        (["--eos-id", "3"], "only a store is opened with such declarations: --eos-id"),
        (["--set", "sed=3"], "did you mean 'seed'?"),
    ],
)
def test_wrong_use_is_told_before_anything_is_served(
    recipe: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert said in told(capsys, str(recipe), *words)


def test_only_two_of_a_kind_are_compared(
    recipe: Path, stores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = told(capsys, str(recipe), str(stores / "texts"))
    assert "a recipe and a store have nothing to compare" in said


def test_a_recipe_with_a_broken_path_names_it(
    stores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = write_recipe(
        tmp_path / "broken.toml",
        "seq_len = 64\nglobal_batch_size = 6\n",
        {"name": "texts", "path": str(stores / "texts")},
        {"name": "gone", "path": "nowhere/at/all"},
    )
    said = told(capsys, str(broken), code=1)
    assert "nowhere/at/all: there is no such file or folder" in said


def test_another_tokenizer_is_refused_unless_it_is_forced(
    stores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokenreel.text.tokenizers.train import train_bpe

    other = tmp_path / "tokenizer.json"
    other.write_bytes(train_bpe(["so it goes " * 50], vocab_size=260, specials=["<|endoftext|>"]))
    words = [str(stores / "texts"), "--tokenizer", str(other)]
    assert "insist with --force-tokenizer" in told(capsys, *words, code=1)
    out = tmp_path / "a.html"
    assert main(["view", *words, "--force-tokenizer", "--export", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(out), "bytes": out.stat().st_size}


def test_without_its_packages_the_command_says_what_to_install(
    recipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("uvicorn", "starlette"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            said = told(capsys, str(recipe), code=1)
        assert f"the viewer needs the package '{package}'" in said
        assert 'pip install "tokenreel[view]"' in said


def test_addresses_of_all_kinds_of_hosts_can_be_opened() -> None:
    assert address_of("127.0.0.1", 80, "t") == "http://127.0.0.1:80/t/"
    assert address_of("0.0.0.0", 80, "t") == "http://127.0.0.1:80/t/"
    assert address_of("::1", 80, "t") == "http://[::1]:80/t/"


def test_unless_told_no_other_machine_reaches_the_socket() -> None:
    with bound_socket("127.0.0.1", 0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        assert listening.family == socket.AF_INET
