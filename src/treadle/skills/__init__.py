"""What users and projects bring for agents, as Markdown with front matter (E-03): skills, own commands, custom agents.
A project's count only once a person has trusted their content (S-09). Text only: nothing in it can widen permissions,
and scripts of skills run like any command."""
