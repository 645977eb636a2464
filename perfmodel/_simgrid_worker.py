"""A simulation, in a process of its own: the only module that imports simgrid.

Run as a script by `perfmodel.simulation`: a job comes as JSON on standard input, the results go
back as JSON on standard output, SimGrid's own messages to standard error. The process is fresh
each time because a SimGrid engine is one for each process: its clock goes on, and a second engine
silently keeps the network factors of the first.

It imports nothing of perfmodel and knows only plain values. A task is one training step, or a
collective alone, which is a step without compute::

    {"hosts": [names], "flops": [before each bucket …, after the last], "optimizer_s": …,
     "buckets": [{"n_steps": …, "bytes": …, "step_latency_s": …, "inside_time_s": …}, …],
     "fidelity": "fluid" | "message"}
"""

import contextlib
import ctypes
import json
import os
import signal
import sys
import tempfile
import traceback


def main():
    """Serve one job and leave without the interpreter's shutdown, which SimGrid can hang."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what SimGrid prints on standard output must not mix with the results
    die_with_parent()
    pin_to_one_processor()
    try:
        import simgrid
    except ImportError as error:
        answer = {"missing": str(error)}
    else:
        job = json.load(sys.stdin)
        try:
            answer = serve(simgrid, job)
        except BaseException as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
    json.dump(answer, results)
    results.flush()
    os._exit(0)


def die_with_parent():
    """Ask Linux to end this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def pin_to_one_processor():
    """Stay on one processor: SimGrid's threads take turns, and moving makes them 2-3 x slower."""
    if hasattr(os, "sched_setaffinity"):
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[os.getpid() % len(cpus)]})


@contextlib.contextmanager
def platform_file(xml):
    """Path of a file that holds the platform; in memory where that can be, to leave nothing."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("platform.xml"), "wb", buffering=0) as file:
            file.write(xml.encode("latin-1"))
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile(suffix=".xml") as file:
            file.write(xml.encode("latin-1"))
            file.flush()
            yield file.name


def serve(simgrid, job):
    quiet = ["--log=root.thres:critical", "--log=xbt_cfg.thres:critical"]
    engine = simgrid.Engine(["perfmodel", *quiet, "--cfg=network/model:raw"])
    with platform_file(job["platform"]) as path:
        try:
            engine.load_platform(path)
        except Exception as error:
            raise RuntimeError(str(error).replace(path, job["platform_name"])) from None
    simulation = _Simulation(simgrid, engine, job)
    driver = engine.host_by_name(job["driver_host"])
    driver.add_actor("driver", simulation.guard(simulation.drive))
    engine.run()
    if simulation.error is not None:
        raise simulation.error
    # A deadlock lets run() return as if nothing had happened.
    if not simulation.finished:
        raise RuntimeError("deadlock: activities are left that can never complete")
    return {"routes": simulation.routes, "tasks": simulation.results}


class _Simulation:
    def __init__(self, simgrid, engine, job):
        self.sg, self.engine, self.job = simgrid, engine, job
        self.routes, self.results = [], []
        self.error, self.finished = None, False
        self.latencies = {}

    def guard(self, function):
        """Run an actor so that its exception ends the simulation instead of the process."""

        def guarded():
            try:
                function()
            except self.sg.ActorKilled:
                raise
            except BaseException as error:
                self.error = error
                self.sg.Actor.kill_all()

        return guarded

    def drive(self):
        # Routes are only known to be right while the simulation runs.
        for source, destination in self.job["routes"]:
            links, latency_s = self.hosts([source])[0].route_to(self.hosts([destination])[0])
            self.routes.append({"links": [link.name for link in links], "latency_s": latency_s})
        for task in self.job["tasks"]:
            self.results.append(self.step(task))
        self.finished = True

    def hosts(self, names):
        return [self.engine.host_by_name(name) for name in names]

    def step(self, task):
        """One step: compute on this actor, gradient buckets on another, as NCCL's stream is."""
        sg, hosts = self.sg, self.hosts(task["hosts"])
        start_s = sg.Engine.clock
        ready, summed = sg.Semaphore(0), sg.Semaphore(0)
        reduce_bucket = {"fluid": self.fluid_ring, "message": self.message_ring}[task["fidelity"]]

        def communicate():
            for bucket in task["buckets"]:
                ready.acquire()
                reduce_bucket(hosts, bucket)
            summed.release()

        hosts[0].add_actor("communication", self.guard(communicate))
        *before, after = task["flops"]
        for flops in before:
            self.compute(hosts, flops)
            ready.release()
        self.compute(hosts, after)
        compute_s = sg.Engine.clock - start_s
        summed.acquire()
        sg.this_actor.sleep_for(task["optimizer_s"])
        compute_s += task["optimizer_s"]
        return {"time_s": sg.Engine.clock - start_s, "compute_time_s": compute_s}

    def compute(self, hosts, flops):
        if flops == 0:
            return
        running = []
        for host in hosts:
            activity = self.sg.this_actor.exec_init(flops)
            activity.host = host
            running.append(activity.start())
        for activity in running:
            activity.wait()

    def fluid_ring(self, hosts, bucket):
        """All bytes that a hop of the ring carries as one flow; then what its steps wait."""
        start_s = self.sg.Engine.clock
        if len(hosts) > 1:
            n_steps, pairs = bucket["n_steps"], _neighbours(hosts)
            self.send_around(pairs, bucket["bytes"])
            # The flows have waited for the latency of one step.
            self.sg.this_actor.sleep_for(
                (n_steps - 1) * self.latency(hosts) + n_steps * bucket["step_latency_s"]
            )
        self.sg.this_actor.sleep_until(start_s + bucket["inside_time_s"])

    def latency(self, hosts):
        """Latency of a ring's slowest hop."""
        names = tuple(host.name for host in hosts)
        if names not in self.latencies:
            self.latencies[names] = max(a.route_to(b)[1] for a, b in _neighbours(hosts))
        return self.latencies[names]

    def message_ring(self, hosts, bucket):
        """Every step of the ring on its own."""
        start_s, n_steps = self.sg.Engine.clock, bucket["n_steps"]
        if len(hosts) > 1:
            pairs = _neighbours(hosts)
            for _ in range(n_steps):
                self.send_around(pairs, bucket["bytes"] / n_steps)
                self.sg.this_actor.sleep_for(bucket["step_latency_s"])
        self.sg.this_actor.sleep_until(start_s + bucket["inside_time_s"])

    def send_around(self, pairs, n_bytes):
        # SimGrid takes whole bytes; one flow has at least one, since one of none has no latency.
        flows = [self.sg.Comm.sendto_async(a, b, max(1, round(n_bytes))) for a, b in pairs]
        for flow in flows:
            flow.wait()


def _neighbours(hosts):
    return list(zip(hosts, [*hosts[1:], hosts[0]], strict=True))


if __name__ == "__main__":
    main()
