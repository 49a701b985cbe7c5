"""The command ``bitlake`` (also ``python -m bitlake``): what the lake's methods do, from a terminal.

How it is made
--------------
* **Commands that belong together share a file** (``tables.py``: tables, describe, files) with ``register(app, name)``;
  :data:`bitlake.cli.app.COMMANDS` names the file of each command.  Only the file of the command that was asked for is
  imported, so a command costs the others nothing::

      def register(app: typer.Typer, name: str) -> None:
          commands: dict[str, Command] = {"tables": tables, "describe": describe, "files": files}
          command(app, name, commands[name])

      def history(run: Run, table: TableName, limit: Annotated[int, typer.Option(help="…")] = 20) -> None:
          \"\"\"What was committed to a table, the latest first.\"\"\"      <- the help text
          document = {"table": table, "snapshots": [...]}
          run.out.result(document, lambda screen: _show(screen, document))

* :func:`bitlake.cli.run.command` adds the options that every command has (``--lake``, ``--option``, ``--json`` …) and
  makes them a :class:`bitlake.cli.run.Run`: ``run.lake()``, ``run.table(name)``, ``run.out``.
* **Output goes through one** :class:`bitlake.cli.output.Output`.  A command makes a plain ``dict`` (the documented
  shape of ``--json``: names in snake_case, bytes and rows as numbers, times as ISO 8601 in UTC) and a function that
  draws that same dict on a :class:`bitlake.cli.output.Screen`: ``screen.table(columns, rows)``, ``screen.pairs(...)``,
  ``screen.line(...)``.  Nothing is printed in any other way; notes and progress go to stderr (``run.out.note``).
* **Heavy imports stay inside functions**: at the top of a command's file stand ``typer`` and this room.  A command that
  needs no Spark starts none; ``tests/cli/test_startup.py`` holds what may be loaded.
* **Errors** are :class:`bitlake.errors.BitlakeError`: raise them, :func:`bitlake.cli.app.main` says them in one line;
  :class:`bitlake.cli.failures.Usage` where the command line itself is wrong.
  Exit codes: 0 it worked; 1 it failed, or problems were found (``run.out.problems()``); 2 the command line is wrong;
  130 interrupted.
* What deletes shows its plan first and does it with ``--yes``, or when a person at the terminal agrees
  (:meth:`bitlake.cli.run.Run.agreed`).
"""
