"""The ledger of gradients: what each rank computes, and what each rank's optimizer is given, in sampled steps.

It looks at every parameter that any optimizer holds, whoever exchanges its gradient. Between samples a step costs a
look-up and an addition. Nothing is drawn from the user's generators, and nothing is communicated.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ddpdoctor.watch import event_log
from ddpdoctor.watch.events import Clip, ParametersHeld, Site
from ddpdoctor.watch.rank.compared.exchanges import clock, is_captured
from ddpdoctor.watch.rank.compared.fingerprints import fold, is_dense, is_shared, whole
from ddpdoctor.watch.rank.compared.folded import Folded
from ddpdoctor.watch.rank.compared.sampled import is_sampled
from ddpdoctor.watch.rank.compared.windows import Window
from ddpdoctor.watch.rank.ledger.accounts import MOST, Account, constant
from ddpdoctor.watch.rank.ledger.beside import forget_hooks
from ddpdoctor.watch.rank.ledger.left_whole import WholeGradients
from ddpdoctor.watch.rank.ledger.told_steps import Seen, tell
from ddpdoctor.watch.rank.model.beside.held import State
from ddpdoctor.watch.rank.model.beside.held_state import Search
from ddpdoctor.watch.rank.model.beside.used import Calls, EvaluationCalls
from ddpdoctor.watch.rank.model.parameter_names import names_and_holders
from ddpdoctor.watch.rank.model.shards import is_dtensor
from ddpdoctor.watch.rank.model.states import remembered
from ddpdoctor.watch.user_frames import frames, is_users, user_site

if TYPE_CHECKING:
    from ddpdoctor.watch.rank.graph.operands import Operands
    from ddpdoctor.watch.rank.model.models import ProcessWithModels


@dataclass(slots=True)
class Ledger:
    """The accounts of all optimizers of a process, by identity."""

    recorder: ProcessWithModels
    calls: Calls
    operands: Operands
    accounts: dict[int, Account] = field(default_factory=dict)
    state: State | None = None
    whole: WholeGradients = field(init=False)
    evaluation: EvaluationCalls = field(init=False)
    awaits_batch: bool = False
    by_loader: bool = False
    rows: int = 0
    """Of what a wrapped model was given last, while a compared step is on its way."""

    def __post_init__(self) -> None:
        """Look at the same sharded models as the process does."""
        self.whole = WholeGradients(self.recorder.models.shards)
        calls = Calls(self.recorder, self.recorder.models.shards, trains=False)
        self.evaluation = EvaluationCalls(calls, self.trained)

    def built(self, optimizer: Any) -> None:
        """Begin to look, when an optimizer is given parameters."""
        self._arm(self._of(optimizer))

    def before_step(self, optimizer: Any, steps: int) -> None:
        """Look at the step of this number right before it is made, if it is sampled."""
        try:
            account = self._of(optimizer)
            account.steps = steps
            account.stepping = True
            if is_sampled(account.steps) and not is_captured():
                started = time.perf_counter()
                account.sampled = True
                self._begin(account, optimizer)
                self._cost(started)
        finally:
            self.recorder.models.folded.forget()

    def _begin(self, account: Account, optimizer: Any) -> None:
        folded = self.recorder.models.folded
        account.sent = self.recorder.exchanges.elements()
        self._look(account, optimizer)
        account.around = next((each.f_code for each in frames() if is_users(each.f_code.co_filename)), None)
        account.values = folded.all(account.parameters)
        account.given = folded.all(each.grad for each in account.parameters)
        account.parts.before_step()
        account.beside.before_step(folded.all)
        self.whole.before_step(self.recorder, optimizer, account.number, account.steps)
        account.state = remembered(optimizer, account.parameters)
        trained = {id(each) for each in self._held() if each.requires_grad}  # frozen ones are what a step calls
        sharded = set(map(id, account.parts.parameters))
        if not self.recorder.models.known and (replica := self.calls.replica(trained | sharded)) is not None:
            self.recorder.rows.follow(replica)
        account.used = self.calls.look(trained)
        account.clock = clock()

    def after_step(self, optimizer: Any, *, closure: bool) -> None:
        """Record a sampled step; look again where gradients came, or were exchanged, in the step itself."""
        account = self._of(optimizer)
        account.stepping = False
        if account.sampled:
            started = time.perf_counter()
            if closure or self.recorder.exchanges.elements() > account.sent:
                account.given = Folded().all(each.grad for each in account.parameters)
            state, self.state, self.awaits_batch = self.state or State(), None, False
            parts = tuple(each for group in optimizer.param_groups for each in group["params"] if self._is_part(each))
            tell(self.recorder, account, optimizer, Seen(state, self.operands, self.rows, parts))
            account.beside.tell(self.recorder, account.number, account.steps)
            account.sampled = False
            self._cost(started)
        if account.window is not None:
            self._disarm(account)
        if is_sampled(account.steps + 1):
            self._arm(account)
            self.calls.begin()
            self.operands.begin()
            if not self.by_loader:
                self._look_around()
            self.awaits_batch = True

    def before_batch(self) -> None:
        """Look at what the user's objects hold when a loader is about to give the batch of a compared step.

        Where no loader does, that is looked at when the step before has ended. What is held then was not computed from
        the samples of the step that is compared.
        """
        self.awaits_batch, self.by_loader = False, True
        self._look_around()

    def _look_around(self) -> None:
        started = time.perf_counter()
        self.state = Search(self.recorder.models).run()
        self._cost(started)

    def backward_ended(self) -> None:
        """Look at what a backward has left of sharded gradients, which come when it ends."""
        for account in self.accounts.values():
            if account.window is not None and not account.stepping:
                account.parts.after_backward()

    def quiet(self) -> None:
        """Take away what is told of calls and of operators."""
        self.calls.end()
        self.evaluation.calls.end()
        self.operands.end()

    def given(self, args: Sequence[Any]) -> None:
        """Take note of what a wrapped model is given."""
        shape: Any = getattr(args[0], "shape", ()) if args else ()
        self.rows = int(shape[0]) if len(shape) else 0

    def backward_begins(self) -> None:
        """Look at what the step before has left of the gradients, when the first backward after it begins."""
        for account in self.accounts.values():
            if account.window is not None and account.steps and not (account.stepping or account.added):
                account.left.backward_begins((*account.parameters, *account.parts.parameters))

    def clears(self, owner: Any) -> None:
        """Take note that gradients are about to be cleared: of which of these they are, they show themselves."""
        site = user_site()
        inside = set(map(id, owner.parameters())) if hasattr(owner, "parameters") else set()
        for account in self.accounts.values():
            whole = owner is account.optimizer() or inside.issuperset(map(id, account.parameters))
            if account.window is not None and whole:
                account.left.site = site
            if account.pending and account.window is not None and not account.stepping:
                account.pending = False
                account.cleared += 1

    def clips(self, parameters: list[Any], norm: Any, most: float, site: Site | None) -> None:
        """Take note that gradients are about to be clipped by their norm, which is read where a step is sampled."""
        ours = set(map(id, parameters))
        for account in self.accounts.values():
            window = account.window
            if window is None or account.stepping or not any(id(each) in ours for each in account.parameters):
                continue
            owners = {id(owner[0]): owner[0] for each in parameters if (owner := self.recorder.models.of(each))}
            synced = all(model.last_synced for model in owners.values())
            reduced = sum(each.elements for each in window.seen if each.when == "after backward")
            file, line = (site.file, site.line) if site else ("", 0)
            account.clips.append(Clip(float(norm), float(most), reduced, synced, file, line))

    def stale(self, optimizer: Any) -> None:
        """Record what an optimizer holds that was replaced by shards."""
        account = self._of(optimizer)
        self.recorder.models.shards.before_step(self.recorder, optimizer, account.number, account.site)

    def _held(self) -> list[Any]:
        return [each for one in self.accounts.values() for each in one.parameters]

    def trained(self) -> set[int]:
        """Return the identities of what optimizers hold."""
        return set(map(id, self._held()))

    def evaluated(self) -> None:
        """Tell what an evaluation has called, when it is over."""
        if self.evaluation.calls.handle is not None:
            started = time.perf_counter()
            self.evaluation.tell(self.recorder)
            self._cost(started)

    def _cost(self, started: float) -> None:
        self.recorder.writer.counters[event_log.SAMPLING_MICROSECONDS] += int((time.perf_counter() - started) * 1e6)

    def _of(self, optimizer: Any) -> Account:
        account = self.accounts.get(id(optimizer))
        if account is None or account.optimizer() is not optimizer:
            number, key = self.recorder.number("optimizer", optimizer), id(optimizer)
            alive = weakref.ref(optimizer, lambda gone: self._close(key, gone))
            account = self.accounts[key] = Account(number, alive, user_site())
        return account

    def _close(self, key: int, gone: Any) -> None:
        """Let go of what an optimizer held that is no more."""
        account = self.accounts.get(key)
        if account is not None and account.optimizer is gone:
            del self.accounts[key]
            self._disarm(account)

    def _arm(self, account: Account) -> None:
        """Be told of each gradient that a backward adds up, before anybody else hears of it."""
        optimizer = account.optimizer()
        groups = getattr(optimizer, "param_groups", ())
        account.parameters = self._whole(groups)
        for at, parameter in enumerate(account.parameters):
            wanted = at not in account.hooks and parameter.requires_grad and parameter.is_leaf
            if wanted and is_dense(parameter) and not is_shared(parameter):
                hook = functools.partial(self._added, weakref.ref(account), at)
                account.hooks[at] = parameter.register_post_accumulate_grad_hook(hook)
        if account.window is None:
            account.window = Window(account.parameters, account.when, account.caller, self._held)
            self.recorder.exchanges.windows.append(account.window)
        account.window.parameters = account.parameters
        account.parts.watch(each for group in groups for each in group["params"] if self._is_part(each))
        account.beside.watch(self.recorder.safely)

    def _whole(self, groups: Iterable[dict[str, Any]]) -> tuple[Any, ...]:
        """Return the parameters of which this rank does not hold a part alone, which no rank can compare."""
        return tuple(each for group in groups for each in group["params"] if not self._is_part(each))[:MOST]

    def _is_part(self, parameter: Any) -> bool:
        return is_dtensor(parameter) or self.recorder.models.shards.is_flat(parameter)

    def _disarm(self, account: Account) -> None:
        for at, hook in account.hooks.items():
            hook.remove()
            if at < len(account.parameters):
                forget_hooks(account.parameters[at])
        if account.window in self.recorder.exchanges.windows:
            self.recorder.exchanges.windows.remove(account.window)
        account.window = None
        if not self.recorder.exchanges.windows:  # an evaluation can go on
            self.calls.end()
            self.operands.end()
        for each in (account.hooks, account.local, account.added, account.given, account.values, account.clips):
            each.clear()
        account.used.clear()
        account.parts.forget()
        account.beside.forget()
        account.left.forget()
        account.state, account.cleared, account.pending = (), 0, False

    def _added(self, account: weakref.ref[Account], at: int, parameter: Any) -> None:
        self.recorder.safely(self._note, account(), at, parameter)

    def _note(self, account: Account | None, at: int, parameter: Any) -> None:
        if account is None or at not in account.hooks or is_captured():
            return
        if (gradient := whole(parameter.grad)) is not None:
            account.local[at] = fold(gradient)
            account.added[at] = account.added.get(at, 0) + 1
            account.pending = True

    def _look(self, account: Account, optimizer: Any) -> None:
        """Record whose parameters an optimizer holds, unless that was recorded."""
        groups = optimizer.param_groups
        account.parameters = self._whole(groups)
        managed, known = self.recorder.models.owners(account.parameters)
        if account.held is not None and account.held[1] == managed:
            return
        named = names_and_holders(account.parameters, known)
        names = tuple(name for name, _ in named)
        account.held = names, managed
        account.beside.find(self.recorder, account.parameters, self.trained())
        self.recorder.emit(
            ParametersHeld,
            optimizer=account.number,
            kind=type(optimizer).__name__,
            names=names,
            sizes=tuple(each.numel() for each in account.parameters),
            managed=managed,
            constant=tuple(constant(account.parameters)),
            shards=sum(self._is_part(each) for group in groups for each in group["params"]),
            holders=tuple(holder for _, holder in named),
            site=account.site,
        )
