"""The vocabulary of the Copilot SDKs' protocol and its translation, as tables and pure functions: names of methods, the
configuration of a session, events, requests. Reads nothing and calls no one; `copilot_sdk/` uses it."""
