"""The words of the Copilot SDKs' protocol and what they mean here, as tables and pure functions: names of methods, what
a program says of a session, what happened, what is asked. Reads nothing, asks nobody; `copilot_sdk/` speaks them."""
