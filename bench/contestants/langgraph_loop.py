"""LangGraph: the usual graph of a model and its tools, with the project's own SQLite checkpointer."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from harness import Setting, main, noop
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


class LangGraphChat:
    """Without a checkpointer the graph forgets: only `rounds`, where a chat has one run, measures it that way."""

    def __init__(self, graph: Any, name: str) -> None:
        self._graph = graph
        self._config = {"configurable": {"thread_id": name}, "recursion_limit": 10_000}

    async def send(self, text: str) -> AsyncIterator[str]:
        said = {"messages": [{"role": "user", "content": text}]}
        async for message, _ in self._graph.astream(said, self._config, stream_mode="messages"):
            if isinstance(message, AIMessageChunk) and message.content:
                yield message.content


class LangGraphContestant:
    def __init__(self, setting: Setting, saver: AsyncSqliteSaver | None, stack: AsyncExitStack) -> None:
        self._setting = setting
        self._saver = saver
        self._stack = stack
        self._graphs: dict[str, Any] = {}
        self._commits = 0
        if saver:
            self._count_commits(saver.conn)

    def _graph(self, model: str) -> Any:
        llm = ChatOpenAI(model=model, base_url=self._setting.url, api_key="none", max_retries=0, timeout=600)
        bound = llm.bind_tools([noop])

        async def call_model(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await bound.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", call_model)
        graph.add_node("tools", ToolNode([noop]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        return graph.compile(checkpointer=self._saver)

    async def chat(self, model: str, name: str) -> LangGraphChat:
        if model not in self._graphs:
            self._graphs[model] = self._graph(model)
        return LangGraphChat(self._graphs[model], name)

    def _count_commits(self, connection: Any) -> None:
        commit = connection.commit

        async def counted() -> None:
            self._commits += 1
            await commit()

        connection.commit = counted

    def commits(self) -> int:
        return self._commits

    async def close(self) -> None:
        await self._stack.aclose()


async def make(setting: Setting) -> LangGraphContestant:
    stack = AsyncExitStack()
    saver = None
    if setting.durable:
        saver = await stack.enter_async_context(
            AsyncSqliteSaver.from_conn_string(str(setting.folder / "checkpoints.db"))
        )
    return LangGraphContestant(setting, saver, stack)


if __name__ == "__main__":
    main(make)
