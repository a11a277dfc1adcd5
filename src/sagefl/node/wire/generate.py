"""Generate the protocol's code from `node.proto`; needs grpcio-tools (development only).

Run it after changing the protocol. A test generates it again and compares. What protoc writes itself runs on two major
versions of protobuf and refuses all others; from the description of the messages, protobuf makes the same classes at
every version since 4.22, so that a node lives beside other packages.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap

GENERATED = ("node_pb2.py", "node_pb2.pyi")
SOURCE = Path(__file__).resolve().parents[3]  # the folder that holds the package

MODULE = '''\
"""The messages of `node.proto`, written by `generate.py`: do not edit."""

from google.protobuf import descriptor_pool, message_factory

_DESCRIPTION = bytes.fromhex(
    """
{description}
    """
)
_POOL = descriptor_pool.Default()
_POOL.AddSerializedFile(_DESCRIPTION)
DESCRIPTOR = _POOL.FindFileByName({name!r})
globals().update(
    {{name: message_factory.GetMessageClass(kind) for name, kind in DESCRIPTOR.message_types_by_name.items()}}
)
'''


def generate(target: Path = SOURCE) -> list[Path]:
    """Write the generated modules below `target` and return their paths."""
    from google.protobuf import descriptor_pb2
    from grpc_tools import protoc

    proto = Path(__file__).with_name("node.proto").relative_to(SOURCE)
    module, types = (target / proto.with_name(name) for name in GENERATED)
    with TemporaryDirectory() as folder:
        whole = Path(folder) / "set"
        flags = [f"-I{SOURCE}", f"--descriptor_set_out={whole}", f"--pyi_out={target}"]
        if protoc.main(["protoc", *flags, str(proto)]) != 0:
            raise RuntimeError(f"protoc could not compile {proto}; see its messages above")
        (file,) = descriptor_pb2.FileDescriptorSet.FromString(whole.read_bytes()).file
    for field in (field for message in file.message_type for field in message.field):
        field.ClearField("json_name")  # follows from its name
    lines = wrap(file.SerializeToString(deterministic=True).hex(), 116)
    text = MODULE.format(description="\n".join(f"    {line}" for line in lines), name=proto.as_posix())
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text(text, encoding="utf-8")
    return [module, types]


if __name__ == "__main__":
    for path in generate():
        print(path)
