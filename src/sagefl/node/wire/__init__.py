"""The protocol: `node.proto` and the code generated from it (`python -m sagefl.node.wire.generate`)."""
