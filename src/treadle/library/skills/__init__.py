"""Extensions of users and projects for agents, as Markdown with front matter (E-03): skills, custom commands, custom
agents. A project's extensions count only once a person has trusted their content (S-09). Text only: nothing in it can
widen permissions, and scripts of skills run like any command."""
