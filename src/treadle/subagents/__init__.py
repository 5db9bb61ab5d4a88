"""Chats that a call of another chat begins (L-22, L-23): sub-agents of a model, and the attempts of a race.

A child's id, and that of its world, are made from the call that begins it, and it is created together with its task. So
whoever runs the call again after a crash finds the same children, and does nothing twice. What is committed is
journalled under the name of the call and the number of the child.

`children` begins chats and follows them until they rest; `delegate` and `race` are what the two tools do; `judging`
chooses the winner of a race; `tree` shows who began whom; `racing` is `Agent.race`.
"""
