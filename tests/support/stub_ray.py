"""Stand-in for the module `ray`: workers are threads of this process, and some of them are lost."""

from types import SimpleNamespace


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        self.cause = cause


class Answer:
    """Result of a call, which is made when somebody waits for it."""

    def __init__(self, call):
        self._call, self._result = call, None

    def make(self):
        if self._result is None:
            try:
                self._result = (self._call(), None)
            except RayError as error:
                self._result = (None, error)
            except Exception as error:
                self._result = (None, RayTaskError(error))

    def result(self):
        self.make()
        value, error = self._result
        if error is not None:
            raise error
        return value


class Actor:
    """Handle of an actor. `lost(number, actor, events)` says after which answer of which actor its machine is lost."""

    def __init__(self, cluster, cls):
        self._cluster, self.number, self.dead, self.inner = cluster, len(cluster.actors), False, cls()
        cluster.actors.append(self)

    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *arguments: self._asked(name, arguments))

    def _asked(self, name, arguments):
        answer = Answer(lambda: self._call(name, arguments))
        if name != "next":  # happens whether or not somebody waits for it
            answer.make()
        return answer

    def _call(self, name, arguments):
        if self.dead:
            raise RayError("the actor died\nand more")
        given = getattr(self.inner, name)(*arguments)
        if name == "next" and self._cluster.lost(self.number, given):
            self.dead = True  # the thread trains on, as on a machine that only the network has lost
            raise RayError("the actor died\nand more")
        return given


class StubRay:
    """Cluster of two machines with two CPUs each."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, lost=lambda number, events: False, machines=({"CPU": 2.0}, {"CPU": 2.0})):
        self.lost, self.machines, self.actors = lost, machines, []

    def remote(self, **options):
        def wrapped(inner):
            if isinstance(inner, type):
                return SimpleNamespace(remote=lambda: Actor(self, inner))
            return SimpleNamespace(remote=lambda *arguments: Answer(lambda: inner(*arguments)))

        return wrapped

    def nodes(self):
        return [{"Alive": True, "Resources": has} for has in self.machines]

    def wait(self, answers, num_returns=1, timeout=None):
        return answers[:1], answers[1:]

    def get(self, answer):
        return answer.result()

    def kill(self, actor):
        actor.dead = True
