"""What a training that stands has come to: the members of the family of hangs."""

from __future__ import annotations

import enum

from ddpdoctor.check import Doing

GONE = (Doing.FAILED, Doing.DIED, Doing.STOPPED)


class Hang(enum.Enum):
    """What stands in the way: of each exactly one check speaks."""

    GONE = "a rank failed, was killed or was stopped"
    NEVER_JOINED = "a rank never joined the process group"
    LEFT = "a rank has ended while the others go on"
    STANDS = "a rank stands still outside of any communication"
    THREAD = "a rank stands still, and an exception has ended a thread of it"
    WORKS = "a rank works, or asks for something, while the others wait for it"
    SHAPES = "ranks give different shapes to one collective"
    ROOTS = "ranks name different roots of one collective"
    BRANCH = "a rank gathers the weights of a part of the model that another one leaves out"
    ORDER = "ranks call different collectives"
    GUARDED = "a collective is called by some ranks only"
    METRICS = "a metric is synchronised by some ranks only"
    BATCH = "a call is behind a test that each rank's own batch decides"
    SWALLOWED = "an exception that one rank swallowed let it skip a collective"
    CALLED_BACK = "a signal, or the end of an object, has led one rank into a communication"
    THREADS = "a thread communicates in the group of the training"
    EXITED = "one rank has left a loop that another one is in"
    PASSES = "a loop with a collective has more passes on one rank"
    UNEVEN = "ranks have different numbers of batches"
    JOINS = "a collective of the script's own stands within Join"
    ENTERED = "some ranks have entered Join, and others have not"
    RECEIVES = "all ranks wait to receive"
    UNSENT = "a rank waits for a message more than was sent"
    SAME = "all ranks wait in the same collective"
    DIVERGED = "ranks are at different places"
    ASKED = "one rank was told to end the training, by a flag of a framework"
    OUTSIDE = "ranks call an operation with a group that they are not in"
    CUT = "another host does not answer any more"
    UNRESOLVED = "the name of the host at which the ranks meet is not known here"
    ON_LOOPBACK = "other hosts are told to come to a loopback address"
    UNSEEN = "all ranks of this host wait, for others that are not seen from here"
    APART = "all ranks of this host stand still outside of any communication, and others are not seen from here"
    AWAY = "all ranks of this host work, or ask, and have met no other one for long; others are not seen from here"
