"""Scenes of chats that begin others."""

from tests.scenario.family import ByTask
from tests.scenario.scenes.world import World, finish, scene, watch
from treadle.adapters.models.scripted import Call, Say
from treadle.base.types import ChatId


@scene
async def calls_that_begin_other_chats(world: World) -> ChatId:
    """Two calls beside each other, and one that is refused."""
    (world.root / "a.txt").write_text("one\n")
    look = Call("delegate", tasks=[{"task": "Look at it", "read_only": True}])
    write = Call("delegate", tasks=[{"task": "Write b"}, {"task": "Look at it", "read_only": True}])
    unknown = Call("delegate", tasks=[{"task": "Look at it", "agent": "nobody"}])
    scripts = {
        "Do it": [[look, write], unknown, Say("Done.")],
        "Look at it": [Call("read_file", path="a.txt"), Say("It says one.")],
        "Write b": [Call("write_file", path="b.txt", content="b\n"), Say("Written.")],
    }
    agent = world.agent(ByTask(scripts))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Do it"))
    await finish(agent)
    return chat.id
