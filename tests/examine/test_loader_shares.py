"""The arithmetic of shares and streams, against brute force."""

from __future__ import annotations

from hypothesis import given, strategies as st

from ddpdoctor.examine.loader.facts import Order, Probe, RankLoader, same_order
from ddpdoctor.examine.loader.shares import compare_shares, likeness, shared_part

WORLDS = st.integers(1, 8)
LENGTHS = st.integers(1, 80)


def padded(length: int, world: int) -> list[tuple[int, ...]]:
    """Cut as DistributedSampler does without shuffling."""
    order = list(range(length))
    total = -(-length // world) * world
    order = (order * (total // length + 1))[:total]
    return [tuple(order[rank::world]) for rank in range(world)]


@given(LENGTHS, WORLDS)
def test_padding_is_what_is_drawn_beyond_one_for_each(length: int, world: int) -> None:
    """DistributedSampler draws, beyond each sample once, what fills up the last round, and leaves nothing out."""
    shares = compare_shares(padded(length, world))

    assert shares.distinct == length
    assert shares.extra == -length % world
    assert len(shares.repeated) < world
    assert shares.read == -(-length // world)


def test_that_is_how_torch_cuts() -> None:
    """The brute force above is what torch does."""
    from torch.utils.data.distributed import DistributedSampler

    for length in (1, 2, 3, 7, 8, 9, 64, 65):
        for world in (1, 2, 3, 8):
            samplers = [DistributedSampler(range(length), world, rank, shuffle=False) for rank in range(world)]  # type: ignore[arg-type,var-annotated]  # any sequence serves
            assert [tuple(sampler) for sampler in samplers] == padded(length, world)


@given(st.lists(st.lists(st.integers(0, 20)), min_size=1, max_size=5))
def test_repeated_samples_are_those_on_several_ranks(drawn: list[list[int]]) -> None:
    """A sample counts as repeated when two ranks have it, however often one of them has."""
    shares = compare_shares(drawn)

    slow = [index for index in range(21) if sum(index in each for each in drawn) > 1]
    assert list(shares.repeated) == slow
    assert shares.distinct == len({index for each in drawn for index in each})
    assert shares.distinct + shares.extra == sum(len(each) for each in drawn)


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_the_shared_part(one: set[int], other: set[int]) -> None:
    """The part is of the smaller set; an empty one shares nothing."""
    smaller = min(one, other, key=len)
    assert shared_part(one, other) == (
        sum(each in one and each in other for each in smaller) / len(smaller) if smaller else 0
    )


TEXTS = st.lists(st.text("abcdefghij", min_size=1, max_size=3), max_size=30)


@given(TEXTS, st.booleans())
def test_streams_that_differ_in_everything_are_not_alike(stream: list[str], ended: bool) -> None:  # noqa: FBT001
    """No stream is like one that shares no sample with it."""
    assert likeness([tuple(stream), tuple(f"other {each}" for each in stream)], ended=ended) is None


@given(st.lists(st.integers(), unique=True, min_size=4, max_size=30))
def test_the_same_samples_in_another_order_are_alike_at_their_end(numbers: list[int]) -> None:
    """Order matters as long as streams go on; when they ended, what they held does."""
    stream = tuple(map(str, numbers))
    turned = stream[1:] + stream[:1]

    whole = likeness([stream, turned], ended=True)
    assert whole is not None
    assert (whole.samples, whole.same_order) == (len(stream), False)
    assert likeness([stream, turned], ended=False) is None
    begun = likeness([stream, stream[:4]], ended=False)
    assert begun is not None
    assert (begun.samples, begun.same_order) == (4, True)


def test_constants_and_labels_prove_nothing() -> None:
    """Equal streams of few values can be of different samples."""
    assert likeness([("a",) * 20, ("a",) * 20], ended=True) is None
    assert likeness([tuple("abcabcabc"), tuple("abcabcabc")], ended=True) is None
    assert likeness([("a",), ("a",)], ended=True) is None


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), max_size=6), st.booleans())
def test_orders_are_compared_as_far_as_they_were_read(one: list[int], other: list[int], complete: bool) -> None:  # noqa: FBT001
    """Where reading ended before the order did, only the beginnings are compared."""
    orders = [Order(tuple(each), (), complete) for each in (one, other)]

    length = min(len(one), len(other))
    assert same_order(orders) is (one == other if complete else one[:length] == other[:length])


@given(st.permutations(range(12)), st.lists(st.integers(0, 11), max_size=12))
def test_samples_are_named_below_the_subset(chosen: list[int], drawn: list[int]) -> None:
    """The indices of a Subset are those of the data set below it."""
    order = Order(tuple(drawn), (), complete=True)
    loader = RankLoader(0, "", "", False, 12, None, None, False, 0, None, (order, order), subset=tuple(chosen))  # noqa: FBT003

    assert loader.samples() == tuple(chosen[index] for index in drawn)


@given(st.lists(st.tuples(st.text(), st.text()), max_size=4))
def test_fixed_parts_came_out_the_same_twice(parts: list[tuple[str, str]]) -> None:
    """A part counts as fixed when it is the same both times."""
    probe = Probe(0, tuple(one for one, _ in parts), tuple(two for _, two in parts), (False,) * len(parts))

    assert [each is not None for each in probe.fixed] == [one == two for one, two in parts]
