"""Flower without its network: a grid that calls the client apps in this process, one after another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class Here(Grid):
    """The clients of one app, by node id; each keeps its context from round to round, as Flower keeps it."""

    def __init__(self, app: Any, clients: int, run_config: dict[str, Any] | None = None) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.app, self.answers = app, dict[str, Message]()
        self.contexts = {
            1000 + part: Context(1, 1000 + part, {"partition-id": part}, RecordDict(), run_config or {})
            for part in range(clients)
        }

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for number, message in enumerate(messages):
            node = message.metadata.dst_node_id
            self.answers[name := f"{node}-{number}"] = self.app(message, self.contexts[node])
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.answers.pop(name) for name in message_ids]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(list(self.push_messages(messages)))
