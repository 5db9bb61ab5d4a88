"""Chats that a call of another chat begins (L-22, L-23): sub-agents of a model, and the attempts of a race.

A child's id, and that of its world, are derived from the call that begins it, and it is created together with its task.
So a worker that runs the call again after a crash finds the same children, and does nothing twice. Commits are
journalled under the name of the call and the number of the child.

`children` begins chats, follows them until they rest, and lists those below one; `delegate` and `race` implement the
two tools, and `race` has `Agent.race`."""
