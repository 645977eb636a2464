"""SimGrid at arm's length: one fresh child process a simulation.

The child is started by exec, not fork: that is safe in a parent that runs threads, needs no
``__main__`` guard in the user's script, and works in notebooks. It costs about 50 ms a simulation,
most of them Python's start; a preloaded server that forks would cost about 5 ms, and would have
to be kept alive and cleaned up (measured in tests/benchmarks).
"""

import json
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from perfmodel.errors import MissingExtraError, PlatformError, SimulationError

_WORKER = Path(__file__).with_name("_simgrid_worker.py")
_NO_SIMGRID = (
    "simulating needs SimGrid: pip install 'perfmodel[simulation]' with pybind11 < 3 as its build "
    "constraint (the recipe is in the documentation, page Installation)"
)


def run_jobs(platform, jobs):
    """Run jobs on a platform, each in a process of its own, all at a time.

    Parameters
    ----------
    platform : Platform
    jobs : list of dict
        ``tasks`` and ``routes`` as `perfmodel._simgrid_worker` takes them.

    Returns
    -------
    list of dict
        ``tasks`` and ``routes`` of each job, as the worker answers them.

    Raises
    ------
    SimulationError
        With SimGrid's own message: of a platform it cannot load, a deadlock, a crash.
    MissingExtraError
        Without SimGrid.
    """
    hosts = platform.hosts()
    if not hosts:
        raise PlatformError(f"{platform.source} has no compute nodes; add hosts")
    # Latin-1 carries any bytes through JSON unchanged.
    xml = platform.text_4_1().decode("latin-1")
    jobs = [
        job | {"platform": xml, "platform_name": platform.source, "driver_host": hosts[0]}
        for job in jobs
    ]
    children = _Children()
    if len(jobs) == 1:
        return [children.run(jobs[0])]
    with ThreadPoolExecutor(len(jobs)) as pool:
        try:
            return list(pool.map(children.run, jobs))
        except BaseException:
            children.kill()
            raise


class _Children:
    """Processes that run now, so that an interrupt can end them all."""

    def __init__(self):
        self._running = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(self, job):
        with tempfile.TemporaryFile() as messages:
            with self._lock:
                if self._closed:
                    raise SimulationError("interrupted")
                process = subprocess.Popen(
                    # -P: the worker's folder, perfmodel/, must not be searched for modules.
                    [sys.executable, "-P", str(_WORKER)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=messages,
                )
                self._running.add(process)
            try:
                output, _ = process.communicate(json.dumps(job).encode())
            finally:
                process.kill()
                process.wait()
                with self._lock:
                    self._running.discard(process)
            messages.seek(0)
            return _answer(output, process.returncode, messages.read().decode(errors="replace"))

    def kill(self):
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()


def _answer(output, status, messages):
    """The child's answer, or the exception that says what SimGrid said."""
    try:
        answer = json.loads(output)
    except ValueError:
        answer = {"error": f"the simulator ended with status {status}"}
    if "missing" in answer:
        raise MissingExtraError(f"{_NO_SIMGRID}; importing it said: {answer['missing']}")
    if "error" in answer:
        raise SimulationError("; ".join([answer["error"], *_complaints(messages)]))
    return answer


def _complaints(messages):
    """SimGrid's own complaints among what it printed, without time stamps, each once."""
    lines = [line for line in messages.splitlines() if "CRITICAL" in line]
    if not lines and "Traceback" not in messages:
        lines = [line for line in messages.splitlines() if "xbt_cfg" not in line][-3:]
    cleaned = [line.rpartition("] ")[2].strip() for line in lines]
    return [line for line in dict.fromkeys(cleaned) if line]
