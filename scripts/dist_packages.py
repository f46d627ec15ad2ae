"""Writes the packages of one binary `anneal` for Linux, for scripts/dist.sh.

dist_packages.py BINARY VERSION POSTGRES FOLDER writes into FOLDER a Python wheel, two npm packages
(the one that users install, and the one with the binary for this platform) and an archive for
cargo-binstall. POSTGRES is the requirement of the wheel's extra `postgres`. The same binary gives
the same bytes: all times are SOURCE_DATE_EPOCH. COMPRESSION is a level from 0 to 9 (default 9).
"""

import base64
import gzip
import hashlib
import io
import json
import os
import re
import struct
import sys
import tarfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EPOCH = max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800)  # zip has no time before 1980
COMPRESSION = int(os.environ.get("COMPRESSION", "9"))
SUMMARY = "Stores the conversations of LLM applications in PostgreSQL and builds the context for the next model call"
LICENSE = "Apache-2.0"

# The value of e_machine in an ELF header: the name in wheels and target triples, the name in npm.
MACHINES = {62: ("x86_64", "x64"), 183: ("aarch64", "arm64")}

# Libraries that every system with glibc has. A wheel whose binary needs others is not a manylinux wheel.
SYSTEM_LIBRARIES = re.compile(r"(libc|libm|libdl|librt|libpthread|libutil|libresolv|libgcc_s|ld-linux.*)\.so\.\d+")

# The oldest glibc that has a manylinux tag of the form manylinux_2_N without another name.
OLDEST_GLIBC = (2, 17)

SHT_DYNAMIC = 6
SHT_GNU_VERNEED = 0x6FFFFFFE
DT_NEEDED = 1


@dataclass
class Platform:
    """The platform of a binary, as the package formats name it."""

    cpu: str  # in wheels and target triples
    npm_cpu: str
    wheel_tag: str
    libc: str  # gnu or musl


def read_text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()


def read_platform(binary: bytes) -> Platform:
    """Reads the machine, the needed libraries and the needed versions of glibc from the ELF file."""
    if binary[:6] != b"\x7fELF\x02\x01":
        sys.exit("dist_packages.py: the binary is no 64-bit little-endian program for Linux")
    machine = struct.unpack_from("<H", binary, 18)[0]
    if machine not in MACHINES:
        sys.exit(f"dist_packages.py: packages for the ELF machine {machine} are not defined")
    headers_offset = struct.unpack_from("<Q", binary, 40)[0]
    header_size, header_count = struct.unpack_from("<HH", binary, 58)
    # Each header: name, type, flags, address, offset, size, link, and three fields that are not used.
    headers = [struct.unpack_from("<IIQQQQII", binary, headers_offset + i * header_size) for i in range(header_count)]
    libraries, versions = [], []
    for _, kind, _, _, offset, size, link, _ in headers:
        texts = headers[link][4] if link < header_count else 0
        if kind == SHT_DYNAMIC:
            entries = struct.iter_unpack("<QQ", binary[offset : offset + size])
            libraries = [read_text(binary, texts + value) for tag, value in entries if tag == DT_NEEDED]
        if kind == SHT_GNU_VERNEED:
            versions = read_version_names(binary, offset, texts)
    cpu, npm_cpu = MACHINES[machine]
    libc = "gnu" if "libc.so.6" in libraries else "musl"
    return Platform(cpu, npm_cpu, wheel_tag(cpu, libraries, versions), libc)


def read_version_names(binary: bytes, offset: int, texts: int) -> list[str]:
    """The names of the symbol versions that the section at `offset` requires, of all libraries."""
    names = []
    while True:
        _, _, _, first, next_library = struct.unpack_from("<HHIII", binary, offset)
        entry = offset + first
        while True:
            _, _, _, name, next_entry = struct.unpack_from("<IHHII", binary, entry)
            names.append(read_text(binary, texts + name))
            if not next_entry:
                break
            entry += next_entry
        if not next_library:
            return names
        offset += next_library


def wheel_tag(cpu: str, libraries: list[str], versions: list[str]) -> str:
    """manylinux_2_N_CPU, where 2.N is the newest version of glibc that the binary needs. linux_CPU if
    the binary needs other libraries or something of glibc that has no number."""
    glibc = [version.removeprefix("GLIBC_") for version in versions if version.startswith("GLIBC_")]
    is_portable = all(SYSTEM_LIBRARIES.fullmatch(library) for library in libraries)
    if not is_portable or not glibc or not all(re.fullmatch(r"\d+(\.\d+)+", version) for version in glibc):
        return f"linux_{cpu}"
    newest = max(tuple(int(number) for number in version.split("."))[:2] for version in glibc)
    major, minor = max(newest, OLDEST_GLIBC)
    return f"manylinux_{major}_{minor}_{cpu}"


@dataclass
class Entry:
    """A file of a package."""

    path: str
    content: bytes
    executable: bool = False

    def mode(self) -> int:
        return 0o755 if self.executable else 0o644


def write_wheel(file: Path, entries: list[Entry], info: str) -> None:
    """Writes the entries and RECORD, which has their digests, into a zip."""
    lines = []
    for entry in entries:
        digest = base64.urlsafe_b64encode(hashlib.sha256(entry.content).digest()).decode().rstrip("=")
        lines.append(f"{entry.path},sha256={digest},{len(entry.content)}\n")
    record = Entry(f"{info}/RECORD", "".join([*lines, f"{info}/RECORD,,\n"]).encode())
    with zipfile.ZipFile(file, "w") as wheel:
        for entry in [*entries, record]:
            header = zipfile.ZipInfo(entry.path, time.gmtime(EPOCH)[:6])
            header.external_attr = (0o100000 | entry.mode()) << 16
            wheel.writestr(header, entry.content, zipfile.ZIP_DEFLATED, COMPRESSION)


def write_tar(file: Path, folder: str, entries: list[Entry]) -> None:
    """Writes the entries into a tar.gz, below `folder`."""
    with (
        open(file, "wb") as target,
        gzip.GzipFile("", "wb", COMPRESSION, target, EPOCH) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for entry in entries:
            header = tarfile.TarInfo(f"{folder}/{entry.path}")
            header.size, header.mode, header.mtime = len(entry.content), entry.mode(), EPOCH
            tar.addfile(header, io.BytesIO(entry.content))


def python_wheel(folder: Path, platform: Platform, version: str, postgres: str, files: dict[str, bytes]) -> None:
    """The wheel: pip copies the binary to the folder of the environment's programs."""
    name = f"anneal_server-{version}"
    info = f"{name}.dist-info"
    tag = f"py3-none-{platform.wheel_tag}"
    metadata = f"""\
Metadata-Version: 2.1
Name: anneal-server
Version: {version}
Summary: {SUMMARY}
License: {LICENSE}
Requires-Python: >=3.9
Provides-Extra: postgres
Requires-Dist: {postgres} ; extra == "postgres"
Description-Content-Type: text/markdown

The program `anneal`. With the extra `postgres`, `anneal dev` needs no PostgreSQL of the system.
"""
    wheel = f"Wheel-Version: 1.0\nGenerator: dist_packages.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    entries = [
        Entry(f"{name}.data/scripts/anneal", files["anneal"], executable=True),
        Entry(f"{info}/METADATA", metadata.encode()),
        Entry(f"{info}/WHEEL", wheel.encode()),
        Entry(f"{info}/LICENSE", files["LICENSE"]),
    ]
    write_wheel(folder / f"{name}-{tag}.whl", entries, info)


def npm_packages(folder: Path, platform: Platform, version: str, files: dict[str, bytes]) -> None:
    """The package that users install, and the one with the binary, which the first one runs. npm
    installs only those optional dependencies that fit the machine."""
    common = {"version": version, "description": SUMMARY, "license": LICENSE}
    optional = {f"@anneal-server/linux-{npm_cpu}": version for _, npm_cpu in MACHINES.values()}
    main = {
        "name": "anneal-server",
        **common,
        "bin": {"anneal": "bin/anneal.js"},
        "engines": {"node": ">=18"},
        "optionalDependencies": optional,
    }
    target = f"linux-{platform.npm_cpu}"
    binary = {
        "name": f"@anneal-server/{target}",
        **common,
        "os": ["linux"],
        "cpu": [platform.npm_cpu],
        **({"libc": ["glibc"]} if platform.libc == "gnu" else {}),
        "bin": {f"anneal-{target}": "bin/anneal"},
        "preferUnplugged": True,
    }
    programs = {
        f"anneal-server-{version}.tgz": (main, Entry("bin/anneal.js", files["anneal.js"], executable=True)),
        f"anneal-server-{target}-{version}.tgz": (binary, Entry("bin/anneal", files["anneal"], executable=True)),
    }
    for name, (manifest, program) in programs.items():
        manifest_entry = Entry("package.json", (json.dumps(manifest, indent=2) + "\n").encode())
        write_tar(folder / name, "package", [manifest_entry, program, Entry("LICENSE", files["LICENSE"])])


def archive(folder: Path, platform: Platform, version: str, files: dict[str, bytes]) -> None:
    """The archive that `[package.metadata.binstall]` in cli/Cargo.toml describes."""
    name = f"anneal-{version}-{platform.cpu}-unknown-linux-{platform.libc}"
    entries = [Entry("anneal", files["anneal"], executable=True), Entry("LICENSE", files["LICENSE"])]
    write_tar(folder / f"{name}.tar.gz", name, entries)


def main() -> None:
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    binary, version, postgres, folder = sys.argv[1:]
    files = {
        "anneal": Path(binary).read_bytes(),
        "anneal.js": (ROOT / "scripts/npm_anneal.js").read_bytes(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    platform = read_platform(files["anneal"])
    python_wheel(Path(folder), platform, version, postgres, files)
    npm_packages(Path(folder), platform, version, files)
    archive(Path(folder), platform, version, files)


if __name__ == "__main__":
    main()
