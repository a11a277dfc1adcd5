from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Description(_message.Message):
    __slots__ = ("layout", "classes", "input", "dtype", "round", "digest", "max_anchors", "max_model_bytes", "mechanism", "epsilon", "protocol")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    MAX_ANCHORS_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    layout: str
    classes: int
    input: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    round: int
    digest: bytes
    max_anchors: int
    max_model_bytes: int
    mechanism: str
    epsilon: float
    protocol: int
    def __init__(self, layout: _Optional[str] = ..., classes: _Optional[int] = ..., input: _Optional[_Iterable[int]] = ..., dtype: _Optional[str] = ..., round: _Optional[int] = ..., digest: _Optional[bytes] = ..., max_anchors: _Optional[int] = ..., max_model_bytes: _Optional[int] = ..., mechanism: _Optional[str] = ..., epsilon: _Optional[float] = ..., protocol: _Optional[int] = ...) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ("kind", "count", "inputs", "digest")
    KIND_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    kind: int
    count: int
    inputs: bytes
    digest: bytes
    def __init__(self, kind: _Optional[int] = ..., count: _Optional[int] = ..., inputs: _Optional[bytes] = ..., digest: _Optional[bytes] = ...) -> None: ...

class ProbeAnswer(_message.Message):
    __slots__ = ("digest", "answers")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    answers: bytes
    def __init__(self, digest: _Optional[bytes] = ..., answers: _Optional[bytes] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    def __init__(self, digest: _Optional[bytes] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("total", "data")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    total: int
    data: bytes
    def __init__(self, total: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("what", "digest")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    what: str
    digest: bytes
    def __init__(self, what: _Optional[str] = ..., digest: _Optional[bytes] = ...) -> None: ...

class Reading(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: bytes
    def __init__(self, values: _Optional[bytes] = ...) -> None: ...

class HealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthReport(_message.Message):
    __slots__ = ("serving", "round", "ready")
    SERVING_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    serving: bool
    round: int
    ready: bool
    def __init__(self, serving: _Optional[bool] = ..., round: _Optional[int] = ..., ready: _Optional[bool] = ...) -> None: ...

class HealthCheck(_message.Message):
    __slots__ = ("service",)
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    service: str
    def __init__(self, service: _Optional[str] = ...) -> None: ...

class HealthStatus(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: int
    def __init__(self, status: _Optional[int] = ...) -> None: ...
