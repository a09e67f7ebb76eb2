from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_sme2.errors import ConnectionLostError, RunError, TargetError
from pytest_sme2.results.run import CoreUse, Turn
from pytest_sme2.results.timing import Outcome, PairSample
from pytest_sme2.session.case_result import speedup_of
from pytest_sme2.targets.base import Job
from pytest_sme2.targets.phone.target import redo_when_lost
from pytest_sme2.timing import pairs as measure
from pytest_sme2.timing import processes, stats
from pytest_sme2.timing.pairs import measure_pairs
from pytest_sme2.timing.processes import Sampling, SamplingPlan, Starter, starter_on
from tests.support.pretended_machine import Machine, make_run


@pytest.mark.parametrize(
    ("slowdown", "outcome"),
    [(0.0, "PASS"), (0.05, "REGRESSED"), (-0.06, "IMPROVED"), (0.3, "REGRESSED")],
)
def test_a_clear_answer_stops_at_the_first_look(slowdown, outcome):
    machine = Machine(slowdown=slowdown)
    result = machine.measure()
    assert str(result.decision.outcome) == outcome
    assert result.stopped_because == "clear"
    assert len(result.pairs) == 10
    assert result.ratio == pytest.approx(1 + slowdown, abs=0.006)
    assert result.interval[0] < result.ratio < result.interval[1]
    # Two pilot processes, then ten pairs of one process of each arm.
    assert len(machine.calls) == 22
    alike = result.warmup, result.runs
    if slowdown < 0.2:
        assert set(machine.calls[2:]) == {("A", *alike), ("B", *alike)}
    else:
        # Processes of equal time.
        runs = {arm: runs for arm, _, runs in machine.calls[2:]}
        assert runs["A"] / runs["B"] == pytest.approx(1 + slowdown, rel=0.1)


@pytest.mark.slow
def test_more_budget_gives_more_pairs():
    """A slowdown of exactly the limit stays open; what ends it is the time, then the last look."""
    pairs = []
    for budget in (4.0, 8.0, 16.0, 3600.0):
        result = Machine(slowdown=0.02, cv=0.003).measure(budget_seconds=budget, runs=50)
        assert result.decision.outcome is Outcome.INCONCLUSIVE
        pairs.append(len(result.pairs))
    assert pairs == sorted(set(pairs))
    assert pairs[-1] == 300
    assert result.stopped_because == "all pairs done"
    assert [look.pairs for look in result.looks] == list(stats.LOOKS)
    assert sum(look.alpha for look in result.looks) <= 0.01


@pytest.mark.parametrize(("slowdown", "says"), [(0.05, Outcome.REGRESSED), (0.0, Outcome.PASS)])
def test_where_others_always_have_the_core_cpu_time_is_taken(slowdown, says):
    shares = random.Random(3)
    stolen = {number: shares.uniform(1, 9) for number in range(700)}
    found = Machine(slowdown=slowdown, base_ns=3e8, stolen=stolen).measure(budget_seconds=30)
    assert found.decision.outcome is says
    assert found.preempted
    # Several threads have no CPU time that could be compared: the wall is all there is.
    several = Machine(slowdown=slowdown, base_ns=3e8, stolen=stolen, threads=2)
    unknown = several.measure(budget_seconds=30)
    assert not unknown.preempted
    assert unknown.decision.outcome is Outcome.INCONCLUSIVE


class Shared(Machine):
    """A core that others want, always or in bursts; the scheduler changes over after a slice."""

    slice_ns = 3e6
    busy_share = 1.0

    def __call__(self, arm, *, warmup, runs):
        run = super().__call__(arm, warmup=warmup, runs=runs)
        used, wall = 0.0, []
        busy, spell_ns = True, 0.0
        for cpu in run.cpu_ns:
            taken = float(cpu)
            if spell_ns <= 0:
                busy = self.random.random() < self.busy_share
                spell_ns = self.random.uniform(0.2e9, 3e9)
            used += cpu
            while used > self.slice_ns:
                used -= self.slice_ns
                taken += self.slice_ns if busy else 0.0
            spell_ns -= taken
            wall.append(taken)
        return make_run(wall, run.cpu_ns)


@pytest.mark.parametrize("busy_share", [0.5, 1.0])
@pytest.mark.parametrize("slowdown", [0.0, 0.05, 0.92])
def test_a_shared_core_does_not_change_the_size_of_a_slowdown(slowdown, busy_share):
    """2 ms fit into a slice and 4 ms do not: by the wall, twice the work takes four times as long.
    The interval that is stated has to hold the truth."""
    held = 0
    for seed in range(40):
        machine = Shared(slowdown=slowdown, base_ns=2e6, seed=seed)
        machine.busy_share = busy_share
        low, high = machine.measure(threshold=None).interval
        held += low <= 1 + slowdown <= high
    assert held >= 38, "99 % each, so 3 misses of 40 happen once in 150 times; the seeds are fixed"


def test_without_a_limit_measuring_stops_when_the_ratio_is_precise():
    result = Machine(slowdown=-0.5).measure(threshold=None, ratio_width=0.01)
    assert result.decision is None
    assert result.stopped_because == "precise"
    assert result.speedup == pytest.approx(2.0, rel=0.01)
    assert result.speedup_interval[0] < 2.0 < result.speedup_interval[1]
    imprecise = Machine(cv=0.05).measure(threshold=None, ratio_width=0.001)
    assert imprecise.stopped_because == "time budget spent"
    assert len(imprecise.pairs) > 30


def test_noise_floor_and_detectable_effect_come_with_the_result():
    result = Machine(cv=0.004).measure()
    assert result.noise_floor == pytest.approx(0.004, rel=0.5)
    assert 0.02 < result.detectable < 0.035
    # Where only the ratio is asked for there is no slowdown to tolerate first.
    ratio = Machine(cv=0.004).measure(threshold=None)
    assert 0 < ratio.detectable < 0.015


def test_the_same_seed_gives_the_same_measurement_and_another_another_order():
    def measured(seed):
        return Machine().measure(seed=seed, looks=(60,), split=(1.0,))

    first, again, other = measured(1), measured(1), measured(2)
    assert first == again
    orders = [[pair.first for pair in result.pairs] for result in (first, other)]
    assert orders[0] != orders[1]
    assert 0.3 < orders[0].count("A") / 60 < 0.7


@pytest.mark.parametrize(
    ("base_ns", "runs", "warmup"),
    # It warms up for 0.3 s, in which a clock rises.
    [(3e6, 100, 100), (1e5, 200, 3000), (100e6, 5, 3), (1e6, 200, 300)],
)
def test_runs_a_process_follow_the_pilot(base_ns, runs, warmup):
    result = Machine(base_ns=base_ns, cv=0.0001).measure(budget_seconds=600)
    assert result.runs == pytest.approx(runs, abs=2)
    assert result.warmup == pytest.approx(warmup, rel=0.05, abs=1)


def test_a_slow_model_gets_fewer_runs_rather_than_fewer_pairs():
    machine = Machine(base_ns=0.6e9, cv=0.002)
    result = machine.measure(budget_seconds=60)
    assert (result.warmup, result.runs) == (1, 2)
    assert result.decision.outcome is Outcome.PASS
    assert any("10 pairs fit into 60 s" in note for note in result.notes)
    slower = Machine(base_ns=2e9, cv=0.002).measure(budget_seconds=30)
    assert (slower.warmup, slower.runs) == (1, 1)
    assert slower.decision.outcome is Outcome.PASS
    assert any("10 pairs still take about" in note for note in slower.notes)


@pytest.mark.parametrize("seconds", [0.3, 1.0])
@pytest.mark.parametrize("slowdown", [0.05, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("loaded", [False, True])
def test_a_slow_model_that_got_slower_regresses_at_the_default_budget(seconds, slowdown, loaded):
    """The worse the slowdown, the longer ten pairs take; they are measured all the same. Many cases
    in a run do not need more of them."""
    # Something else takes two thirds of every process's time.
    stolen = dict.fromkeys(range(100), 2.0) if loaded else {}
    machine = Machine(base_ns=seconds * 1e9, slowdown=slowdown, stolen=stolen)
    result = machine.measure(budget_seconds=30.0, family=27)
    assert result.decision.outcome is Outcome.REGRESSED
    assert len(result.pairs) == 10


def test_an_answer_that_is_open_gets_more_time_up_to_the_hard_limit() -> None:
    """A slow model beside busy neighbours: the pairs within the budget rule nothing out."""
    machine = Machine(slowdown=0.02, cv=0.03, base_ns=0.3e9)
    result = machine.measure(budget_seconds=30.0)
    assert 150.0 < machine.now <= 180.0
    # Only planned looks, and the one when the time is up, give a verdict.
    planned = [look for look in stats.LOOKS if look < len(result.pairs)]
    assert [look.pairs for look in result.looks] == [*planned, len(result.pairs)]
    machine = Machine(slowdown=0.0, cv=0.05, base_ns=0.3e9)
    machine.measure(budget_seconds=30.0, limit_seconds=40.0)
    assert 30.0 < machine.now <= 40.0


class Bursty(Machine):
    """A neighbour that comes and goes, for about as long as a run takes; CPU time is longer, too.

    ``lame``: how much slower each second process of the candidate is.
    """

    lame = 0.0

    def __call__(self, arm, *, warmup, runs):
        run = super().__call__(arm, warmup=warmup, runs=runs)
        hit = (1 + self.lame) if arm == "B" and self.random.random() < 0.5 else 1.0
        slowed = [
            round(value * hit * (1 + self.random.choice((0.0, 0.0, 0.0, 0.1, 0.1, 0.2, 0.2))))
            for value in run.wall_ns
        ]
        return make_run(slowed, slowed)


@pytest.mark.parametrize(("slowdown", "says"), [(0.0, Outcome.PASS), (0.05, Outcome.REGRESSED)])
def test_where_noise_hits_most_runs_the_quickest_decide(slowdown, says):
    told = []
    for seed in range(10):
        machine = Bursty(slowdown=slowdown, base_ns=0.3e9, seed=seed)
        result = machine.measure(budget_seconds=30.0)
        assert result.decision.outcome is says
        assert result.interval[0] <= 1 + slowdown <= result.interval[1]
        assert sum(look.alpha for look in result.looks) <= 0.01
        told += [note for note in result.notes if "the quickest runs decided" in note]
    assert told


def test_the_quickest_do_not_hide_a_program_that_is_slow_now_and_then():
    for seed in range(10):
        machine = Bursty(base_ns=0.3e9, seed=seed)
        machine.lame = 0.2
        assert machine.measure(budget_seconds=30.0).decision.outcome is not Outcome.PASS


def test_the_budget_ends_the_looks_after_the_first():
    machine = Machine(slowdown=0.02)
    result = machine.measure(budget_seconds=2.0, runs=50, warmup=5)
    assert result.decision.outcome is Outcome.INCONCLUSIVE
    assert result.stopped_because == "time budget spent"
    assert 30 < len(result.pairs) < 45
    assert machine.now <= 12.0
    # What there was by then is looked at with the error of the look that was due.
    assert [look.pairs for look in result.looks] == [10, 20, 30, len(result.pairs)]


def test_the_hard_limit_ends_the_first_look_and_leaves_an_estimate():
    machine = Machine(slowdown=0.5, base_ns=4e9)
    result = machine.measure(budget_seconds=30.0, limit_seconds=130.0)
    assert result.cut_short
    assert len(result.pairs) == 4
    assert machine.now <= 130.0
    assert result.decision.outcome is Outcome.INCONCLUSIVE
    assert result.ratio == pytest.approx(1.5, rel=0.02)
    assert result.interval is None
    # Ten budgets where no limit is given, and never less than the budget.
    assert SamplingPlan(budget_seconds=30.0).hard_limit == 300.0
    assert SamplingPlan(budget_seconds=30.0, limit_seconds=5.0).hard_limit == 30.0


def test_a_disturbed_pair_is_dropped_with_its_reason_and_redone():
    machine = Machine(stolen={7: 0.5})
    result = machine.measure()
    assert [entry.pair.index for entry in result.dropped] == [2]
    assert "over CPU time" in result.dropped[0].reason
    assert len(result.pairs) == 10
    assert result.decision.outcome is Outcome.PASS
    assert len(machine.calls) == 2 + 2 * 11


def test_redoing_has_a_cap_and_says_so():
    machine = Machine(stolen=dict.fromkeys(range(2, 200, 8), 0.4))
    result = machine.measure(redo_limit=3)
    assert len(result.dropped) == 3
    assert any("the most allowed" in note for note in result.notes)


def test_the_filter_is_blind_to_the_arms():
    """Exchanging the arms of every pair drops the very same pairs."""
    source = random.Random(3)
    for _ in range(50):
        levels = [source.uniform(*source.choice([(0.3, 0.8), *[(0, 0.01)] * 2])) for _ in range(10)]
        times = [(source.uniform(1e6, 2e6), source.uniform(1e6, 2e6)) for _ in levels]
        dropped = []
        for first, old, new in (("A", 0, 1), ("B", 1, 0)):
            pairs = enumerate(zip(times, levels, strict=True))
            waiting = [
                PairSample(index, first, both[old], both[new], 0.0, level)
                for index, (both, level) in pairs
            ]
            ledger = measure._Ledger(5, waiting=waiting)
            ledger.judge()
            dropped.append([entry.pair.index for entry in ledger.dropped])
        assert dropped[0] == dropped[1]


def test_an_arm_that_always_waits_more_is_not_punished():
    """The limit is relative to the block: what is usual for these pairs is not interference."""

    def waiting(_, arm, run):
        return run if arm == "A" else replace(run, cpu_ns=tuple(int(t / 1.3) for t in run.cpu_ns))

    result = Machine(change=waiting).measure()
    assert result.dropped == ()
    assert any("30% over CPU time" in note for note in result.notes)


@pytest.mark.parametrize(
    ("choices", "why"),
    [
        ({"threads": 2}, "nothing tells how long threads waited for a core"),
        ({"change": lambda _, arm, run: replace(run, cpu_ns=())}, "nothing tells CPU time"),
    ],
)
def test_where_interference_cannot_be_known_nothing_is_dropped(choices, why):
    result = Machine(stolen={5: 0.5}, **choices).measure()
    assert result.dropped == ()
    assert all(pair.interference is None for pair in result.pairs)
    assert f"Interference was not checked: {why}." in result.notes


def test_of_several_threads_it_is_known_how_long_they_waited():
    """One process in ten loses half of its time to others."""
    source = random.Random(3)

    def crowded(machine, arm, run):
        lost = 0.5 if source.random() < 0.1 else 0.001
        wall = tuple(round(time / (1 - lost)) for time in run.wall_ns)
        return replace(run, wall_ns=wall, waited_ns=tuple(round(time * lost) for time in wall))

    result = Machine(threads=2, change=crowded).measure()
    assert result.dropped
    assert all("over CPU time" in entry.reason for entry in result.dropped)
    assert result.decision.outcome is Outcome.PASS
    assert result.ratio == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("every", "dropped"), [(4, 0), (1, 10)], ids=["a quarter of the runs", "all runs"]
)
def test_runs_on_cores_that_were_not_chosen_do_not_count(every, dropped):
    """A phone that switches a core off moves what is kept on it, here to one of half the speed."""

    def moved(_, arm, run):
        away = [number % every == 0 and arm == "B" for number in range(len(run.wall_ns))]
        wall = tuple(
            2 * time if left else time for time, left in zip(run.wall_ns, away, strict=True)
        )
        cores = tuple(0 if left else 7 for left in away)
        return replace(run, wall_ns=wall, cpu_ns=wall, ran_on=cores, meant_for=(6, 7))

    result = Machine(change=moved).measure()
    assert len(result.dropped) == dropped
    if dropped:
        assert {entry.reason for entry in result.dropped} == {
            "most runs were on other cores than 6, 7"
        }
    else:
        assert result.ratio == pytest.approx(1, abs=0.01)
        assert any("on other cores than chosen, which do not count" in n for n in result.notes)


def test_a_screen_that_goes_off_repeats_the_pair():
    def dark(machine, arm, run):
        return replace(run, spoiled="the screen was off, and on at the start")

    result = Machine(change=dark).measure()
    assert {entry.reason for entry in result.dropped} == {"the screen was off, and on at the start"}


def test_runs_that_get_slower_within_a_process_are_flagged():
    def heating(_, arm, run):
        times = enumerate(run.wall_ns)
        hot = tuple(int(time * (1 + 0.06 * n / len(run.wall_ns))) for n, time in times)
        return replace(run, wall_ns=hot, cpu_ns=hot)

    result = Machine(change=heating).measure()
    assert [arm for arm, _ in result.drift] == ["A", "B"]
    assert all(0.03 < amount < 0.05 for _, amount in result.drift)
    assert any("Runs of A get" in note and "slower" in note for note in result.notes)
    assert Machine().measure().drift == ()


def test_progress_is_told_after_every_pair():
    seen: list[str] = []
    Machine(slowdown=0.05).measure(progress=seen.append)
    assert [line.split(" of ")[0] for line in seen] == [f"pair {n}" for n in range(1, 11)]
    assert re.fullmatch(r"pair 1 of 10 to the next look, ratio 1\.0\d\d, \d+ s left", seen[0])
    assert re.search(r"ratio 1\.0[45]\d \[1\.04\d, 1\.05\d\], ", seen[-1])


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"emulated": True}, TargetError, "Emulated times"),
        ({"wall_ns": ()}, RunError, "no usable run times"),
        ({"wall_ns": (0, 0, 0)}, RunError, "no usable run times"),
    ],
)
def test_what_is_not_a_time_is_an_error(changes, error, words):
    with pytest.raises(error, match=words):
        Machine(change=lambda _, arm, run: replace(run, **changes)).measure()


def hot(*processes):
    """The device slowed itself down in these processes; in all of them where none is named."""
    return lambda machine, arm, run: replace(
        run, throttled=not processes or len(machine.calls) in processes
    )


def test_a_throttled_pair_is_dropped_and_measured_again():
    result = Machine(change=hot(6, 12)).measure()
    assert [entry.reason for entry in result.dropped] == [
        "the device slowed itself down against heat"
    ] * 2
    assert all(entry.pair.throttled for entry in result.dropped)
    assert len(result.pairs) == 10
    assert not any(pair.throttled for pair in result.pairs)


def test_throttled_pairs_that_had_to_be_kept_are_counted_and_not_called_interference():
    result = Machine(change=hot()).measure()
    assert result.throttled_pairs == len(result.pairs) > 0
    (note,) = (note for note in result.notes if "dropped" in note)
    assert "dropped for heat or a changed device, the most allowed" in note


def capped(*arms):
    """The highest clock of its core was another one in every process of these arms."""
    text = "the highest clock of core 7 was 3.28 GHz"
    return lambda machine, arm, run: replace(run, clock_change=text if arm in arms else "")


def test_a_cap_spoils_a_pair_only_where_one_arm_alone_had_it_and_they_took_no_turns():
    result = Machine(change=capped("B")).measure()
    assert result.throttled_pairs == len(result.pairs) > 0
    assert len(result.dropped) == 10
    result = Machine(change=capped("A", "B")).measure()
    assert (result.throttled_pairs, result.dropped) == (0, ())
    machine = Alternating(change=capped("A", "B"))
    result = machine.measure(in_turns=machine.in_turns)
    assert (result.throttled_pairs, result.dropped) == (0, ())
    assert all(pair.clock_change for pair in result.pairs)
    assert result.decision.outcome is Outcome.PASS


def test_heat_and_interference_have_repetitions_of_their_own():
    """Ten pairs were hot; the one that something else disturbed is repeated all the same."""
    machine = Machine(change=hot(*range(3, 23)), stolen={24: 0.4})
    dropped = [entry.reason for entry in machine.measure().dropped]
    assert dropped[:10] == ["the device slowed itself down against heat"] * 10
    assert [reason.partition(",")[0] for reason in dropped[10:]] == [
        "wall time 40.0% over CPU time"
    ]


def test_a_wait_for_heat_to_pass_belongs_to_no_time_budget():
    """The phone waits in the middle of a pair, as long as all pairs may take."""
    machine = Machine()
    target = SimpleNamespace(name="phone", waited_seconds=0.0)

    def run(runner, request, folder):
        if len(machine.calls) == 8:
            machine.now += 150.0
            target.waited_seconds += 150.0
        return machine(folder.parent.name, warmup=request.warmup, runs=request.runs)

    target.run = run
    runner: Any = SimpleNamespace(takes_turns=False)
    jobs = {arm: Job(runner, make_run([1]).request, Path(arm)) for arm in "AB"}
    starter = starter_on(target, jobs, clock=machine.clock)
    result = measure_pairs(starter, "A", "B", SamplingPlan(budget_seconds=20.0))
    assert (len(result.pairs), result.stopped_because) == (10, "clear")
    assert result.seconds < 20 < target.waited_seconds < machine.now


def mixed(share=0.3, slow=(6, 14)):
    """It has fast and slow cores; some processes are on a slow one for a part of their time."""

    def change(machine, arm, run):
        part = share if len(machine.calls) in slow else 0.0
        busy = sum(run.cpu_ns)
        energy = (1000 + len(machine.calls)) * len(run.wall_ns)
        cores = CoreUse(int(busy * (1 - part)), int(busy * part), energy, "user interactive")
        return replace(run, cores=cores, clock_ghz=3.0 if arm == "A" else 2.4)

    return Machine(change=change)


def test_a_pair_on_efficiency_cores_is_dropped_whichever_arm_it_was():
    """Processes 6 and 14 are of different arms: the order within a pair is drawn."""
    machine = mixed()
    result = machine.measure()
    assert {machine.calls[5][0], machine.calls[13][0]} == {"A", "B"}
    assert [entry.reason for entry in result.dropped] == [
        "30.0% of a process's CPU time was on efficiency cores"
    ] * 2
    assert [entry.pair.index for entry in result.dropped] == [1, 5]
    assert {pair.efficiency_share for pair in result.pairs} == {0.0}


def test_a_pair_knows_the_mean_clock_and_the_energy_of_both_arms():
    result = mixed().measure()
    assert {pair.clocks_ghz for pair in result.pairs} == {(3.0, 2.4)}
    assert result.clock_ratio == pytest.approx(0.8)
    # An inference of a process costs its number more than 1000 nJ, and a pair is two in a row.
    assert all(abs(one - other) == 1 for one, other in (pair.energy_nj for pair in result.pairs))
    assert Machine().measure().clock_ratio is None


def test_a_moment_on_an_efficiency_core_drops_nothing_and_staying_there_is_told():
    result = mixed(share=0.005).measure()
    assert not result.dropped
    assert not any("efficiency" in note for note in result.notes)
    # Where every pair is, to drop some would only cost time.
    result = mixed(slow=range(1000)).measure(redo_limit=3)
    assert not result.dropped
    assert any("10 of 10 pairs ran partly on efficiency cores" in note for note in result.notes)


def test_a_lost_connection_redoes_the_whole_pair():
    lost: list[str] = []

    def fragile(machine, arm, run):
        # The second process of the first pair, after two of the pilot.
        if len(machine.calls) == 4 and not lost:
            lost.append(arm)
            raise ConnectionLostError("Lost.")
        return run

    recovered: list[bool] = []
    phone = SimpleNamespace(events=[], recover=lambda: recovered.append(True))
    machine = Machine(change=fragile)
    result = machine.measure(redo=lambda pair: redo_when_lost(phone, pair))
    assert recovered == [True]
    assert len(result.pairs) == 10
    # The process that had been measured before the loss was measured again.
    assert len(machine.calls) == 2 + 2 + 2 * 10
    plain = Machine()
    assert [pair.first for pair in result.pairs] == [pair.first for pair in plain.measure().pairs]
    # Of the lost pair nothing is left.
    lost.clear()
    machine = Machine(change=fragile)
    starter = Starter(machine, redo=lambda pair: redo_when_lost(phone, pair))
    for _ in range(2):
        starter.start(["A", "B"], Sampling(1, 1))
    assert (len(machine.calls), *map(len, starter.runs.values())) == (6, 2, 2)


@pytest.mark.parametrize(("enough", "stopped"), [(20, "precise"), (1000, "time budget spent")])
def test_a_question_of_ones_own_is_asked_until_it_is_answered(enough, stopped):
    result = Machine(cv=1e-6).measure(
        threshold=None, budget_seconds=30.0, still_open=lambda pairs: len(pairs) < enough
    )
    assert result.stopped_because == stopped
    # Where it is still open, there are more budgets than one.
    assert (len(result.pairs) == 20, result.seconds > 30) == (enough == 20, enough > 20)


def test_a_device_that_is_always_hot_ends_at_the_time_limit():
    """Though all pairs that were measured should be measured again."""
    for threshold in (0.02, None):
        machine = Machine(base_ns=3e8, change=hot())
        result = machine.measure(budget_seconds=1.0, limit_seconds=4.0, threshold=threshold)
        assert result.cut_short
        assert 10 > result.throttled_pairs == len(result.pairs) > 0


class Alternating(Machine):
    """Its processes take turns on a core whose speed comes and goes in spells."""

    def in_turns(self, arms, *, warmup, runs, turn):
        alone = {arm: self(arm, warmup=warmup, runs=runs) for arm in arms}
        rounds = -(-runs // turn.runs)
        # A spell lasts some rounds and makes everything up to three times slower.
        spells = [1.0] * rounds
        for start in range(0, rounds, 5):
            spells[start : start + 5] = [self.random.choice([1.0, 1.7, 3.0])] * 5

        def slowed(times):
            return tuple(
                round(value * spells[index // turn.runs]) for index, value in enumerate(times)
            )

        def in_turn(run):
            run = replace(run, request=replace(run.request, turn=turn))
            return replace(run, wall_ns=slowed(run.wall_ns), cpu_ns=slowed(run.cpu_ns))

        return {arm: in_turn(run) for arm, run in alone.items()}


@pytest.mark.parametrize(("slowdown", "outcome"), [(0.0, Outcome.PASS), (0.05, Outcome.REGRESSED)])
def test_spells_of_noise_do_not_reach_the_ratio_of_two_that_take_turns(slowdown, outcome):
    machine = Alternating(slowdown=slowdown)
    result = machine.measure(in_turns=machine.in_turns)
    assert result.decision.outcome is outcome
    assert result.stopped_because == "clear"
    assert result.ratio == pytest.approx(1 + slowdown, abs=0.01)
    # The times themselves are all over the place.
    levels = [pair.reference_ns for pair in result.pairs]
    assert max(levels) > 1.3 * min(levels)
    assert result.turn is not None


@pytest.mark.parametrize(
    ("seconds", "turn", "on_mixed_cores"),
    [
        (0.0005, Turn(4, lead=1), Turn(4, lead=1)),
        (0.004, Turn(1, lead=1), Turn(1, lead=1)),
        # Where cores differ, also a longer run has an untimed one first.
        (0.02, Turn(1, lead=0), Turn(1, lead=1)),
        (0.5, Turn(1, lead=0), Turn(1, lead=0)),
    ],
)
def test_a_turn_is_a_few_runs_and_a_slow_run_is_one(seconds, turn, on_mixed_cores):
    assert processes.choose_turn(seconds) == turn
    assert processes.choose_turn(seconds, mixed_cores=True) == on_mixed_cores


def test_generations_take_turns_within_themselves():
    assert processes.choose_turn(0.5, steps=33) == Turn(1)
    assert processes.choose_turn(0.066, steps=33) == Turn(2)
    assert processes.choose_turn(0.001, steps=33) == Turn(33)
    # To wake on a slow core, or to wait for a pool, takes longer than a step.
    assert processes.choose_turn(0.5, mixed_cores=True, steps=33) == Turn(33)
    assert processes.choose_turn(0.5, steps=33, threads=2) == Turn(33)


def test_the_quiet_rounds_are_chosen_blind_to_the_arms_and_by_the_louder_side():
    source = random.Random(11)
    for _ in range(50):
        reference = [source.randrange(1000, 4000) for _ in range(41)]
        candidate = [source.randrange(1000, 4000) for _ in range(41)]
        there = processes.rounds_log_ratio(reference, candidate, 2)
        back = processes.rounds_log_ratio(candidate, reference, 2)
        assert there == pytest.approx(-back)
    quiet = [1000] * 6
    disturbed = [1000, 9000, 1000, 9000, 1000, 1100]
    assert processes.rounds_log_ratio(quiet, disturbed, 1) == pytest.approx(0.0)


def test_a_small_budget_pays_for_what_a_turn_begins_with():
    plan = SamplingPlan(budget_seconds=2.0)
    plain = processes.choose_sampling(0.002, 0.0, 2.0, plan)
    with_lead = processes.choose_sampling(0.002, 0.0, 2.0, plan, Turn(1, lead=1))
    assert with_lead.runs < plain.runs


@pytest.mark.parametrize(("carried", "seen"), [(1.0, False), (1.08, True)])
def test_an_effect_of_short_turns_on_each_other_is_seen_in_blocks(carried: float, seen: bool):
    """B is slower by a factor only where the other arm has just run."""
    machine = Machine()
    turns: list[tuple[int, tuple[str, ...]]] = []

    def take_turns(arms, *, warmup, runs, turn):
        turns.append((turn.runs, tuple(arms)))
        found = {arm: machine(arm, warmup=warmup, runs=runs) for arm in arms}
        if turn.runs < 100:
            slow = tuple(int(carried * time) for time in found["B"].wall_ns)
            found["B"] = replace(found["B"], wall_ns=slow, cpu_ns=slow)
        return {
            arm: replace(run, request=replace(run.request, turn=turn)) for arm, run in found.items()
        }

    def measured(**choices):
        return machine.measure(threshold=None, in_turns=take_turns, **choices)

    result = measured(blocks=4)
    blocks = [entry for entry in turns if entry[0] >= 100]
    assert [order for _, order in blocks] == [("A", "B"), ("B", "A")] * 2
    assert len(result.blocks) == 4
    assert (result.carried_over is not None) is seen
    if seen:
        # The interval holds both answers.
        estimate = speedup_of(result)
        assert estimate.low <= 1 / carried * 1.01
        assert estimate.high >= 0.99
    # All of them, or none: here the time is used up before.
    short = measured(blocks=4, budget_seconds=0.5, limit_seconds=1.0)
    assert short.blocks == ()
    assert any("not checked with long blocks: no time was left" in note for note in short.notes)
    plain = measured()
    assert (plain.blocks, any("blocks" in note for note in plain.notes)) == ((), False)


def test_a_block_in_which_the_device_slowed_itself_down_is_told():
    machine, hot = Machine(), iter([False, True])

    def take_turns(arms, *, warmup, runs, turn):
        throttled = turn.runs >= 100 and next(hot)
        found = {arm: machine(arm, warmup=warmup, runs=runs) for arm in arms}
        return {
            arm: replace(run, throttled=throttled, request=replace(run.request, turn=turn))
            for arm, run in found.items()
        }

    result = machine.measure(threshold=None, in_turns=take_turns, blocks=4)
    assert (result.blocks, next(hot, None)) == ((), None)
    told = "not checked with long blocks: the device changed its speed meanwhile."
    assert any(told in note for note in result.notes)
