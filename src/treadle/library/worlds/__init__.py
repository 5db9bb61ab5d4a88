"""Worlds (W-11 to W-13): a long-lived copy-on-write view of a project in which whole chats work. Files, searches,
commands and undo see it; the project does not change until the world is committed, as one transaction.

    world = await agent.worlds.open(root)                 # nothing is copied until it is written
    chat = agent.chat(root=root, world=world.id)          # `root` stays the project's; paths are called as there
    await agent.worlds.effect(world.id)                   # what a commit would change, and what is in its way
    print(await agent.worlds.diff(world.id))              # the same for people
    done = await agent.worlds.commit(world.id)            # a call in a chat's log: undoable like any other
    await agent.worlds.rebase(world.id)                   # onto what changed in the project meanwhile
    await agent.worlds.drop(world.id)

A world of a world has a `parent`, and is committed into that one. `Worlds.bring_in(name, id)` is the commit alone, for
a tool that records the effect as its own outcome; called again with the same name it completes what was begun.

`record` is what is known of a world and where it lies; `home` how its files are reached; `worlds` what can be done."""
