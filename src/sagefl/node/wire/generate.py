"""Generate the protocol's code from `node.proto`; needs grpcio-tools (development only).

Run it after changing the protocol. A test generates it again and compares.
"""

from __future__ import annotations

from pathlib import Path

GENERATED = ("node_pb2.py", "node_pb2.pyi")
SOURCE = Path(__file__).resolve().parents[3]  # the folder that holds the package


def generate(target: Path = SOURCE) -> list[Path]:
    """Write the generated modules below `target` and return their paths."""
    from grpc_tools import protoc

    proto = Path(__file__).with_name("node.proto").relative_to(SOURCE)
    flags = [f"-I{SOURCE}", f"--python_out={target}", f"--pyi_out={target}"]
    if protoc.main(["protoc", *flags, str(proto)]) != 0:
        raise RuntimeError(f"protoc could not compile {proto}; see its messages above")
    return [target / proto.with_name(name) for name in GENERATED]


if __name__ == "__main__":
    for path in generate():
        print(path)
