"""The command ``bitlake`` (also ``python -m bitlake``): the lake's methods on the command line.

* **Related commands share a file** (``tables.py``: tables, describe, files).  :data:`bitlake.cli.app.COMMANDS` names
  the module and function of each command, and only the module of the command in use is imported::

      @command("history")                                       # bitlake.cli.run.command
      @table_argument()                                         # bitlake.cli.run, or plain click.option
      @limit_option("Show at most N snapshots; 0 shows all.", 20)
      def history(run: Run, table: str, limit: int) -> None:
          \"\"\"List a table's snapshots …\"\"\"             # the help text
          document = {"table": table, "snapshots": [...]}
          run.out.result(document, lambda screen: _show(screen, document))

* :func:`bitlake.cli.run.command` adds the options of every command (``--lake``, ``--option``, ``--json`` …) and passes
  their values as a :class:`bitlake.cli.run.Run`: ``run.lake()``, ``run.table(name)``, ``run.out``.
* **All output goes through** :class:`bitlake.cli.output.Output`.  A command builds a plain ``dict``, the documented
  document of ``--json`` (names in snake_case, bytes and rows as numbers, times as ISO 8601 in UTC), and a function that
  draws the same dict on a :class:`bitlake.cli.output.Screen`: ``screen.table(columns, rows)``, ``screen.pairs(...)``,
  ``screen.line(...)``.  Notes and progress go to stderr (``run.out.note``).
* **Heavy imports stay inside functions**: a command's module imports click and this package at its top.  A command
  without Spark starts none; ``tests/cli/test_startup.py`` checks what each command loads.
* **Errors** are :class:`bitlake.errors.BitlakeError`: raise them, and :func:`bitlake.cli.app.main` prints one line;
  raise :class:`bitlake.cli.failures.Usage` for a wrong command line.  Exit codes: 0 success; 1 failure, or problems
  were found (``run.out.problems()``); 2 wrong command line; 3 a bug; 130 interrupted.
* **Commands that delete** show a plan first and carry it out with ``--yes``, or when the user at the terminal agrees
  (:meth:`bitlake.cli.run.Run.confirmed`).
"""
