"""The vocabulary of the Copilot SDKs' protocol, as tables and pure functions. Reads nothing and calls no one."""
