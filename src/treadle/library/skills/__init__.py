"""Extensions of users and projects, as Markdown with front matter (E-03): skills, commands, custom agents. A project's
count once a person has trusted their content (S-09). Nothing in them can widen permissions."""
