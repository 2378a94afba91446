"""What decides how a rank's calls are read as tasks.

Nodes label them with the values that are installed there, so that no site can replace these.
"""

# what calls are for
ELEMENT_BYTES = 2  # where a recorder states elements only: bfloat16, as in training
SHAPE_BYTES = 256  # shapes of tensors are announced by Sends of their own
CUT_GROUPS = 0.01  # of group calls: more go one way in a pipeline, twice in each iteration

# where iterations begin and end
PAUSE = 0.25  # of an iteration, beyond the baseline there: no part of training takes so long
USUALLY = 0.5  # of the iterations: what comes with as many belongs to them
TOGETHER = 0.25  # of an iteration: pipelines leave their ranks no further apart
LONG_PAUSE = 0.5  # of the baseline pause before an iteration's first exchange
EXCHANGE_TIMES = 3  # times the median pause: before it an iteration begins
REPEATED = 1.5  # times as often as once an iteration: the same two follow within one too

# what repeats within them
REPEATS = 0.999  # of calls are the same as one period before
LOSS = 0.125  # of the largest call: losses, a number a token, are smaller than what layers pass
MOST_WORDS = 4  # of the rarest calls, by whose distance periods are searched
MOST_PERIODS = 1024  # distances between equal calls that are tried

# which schedule a job runs
ALIKE = 1.2  # times another's misfit: less does not distinguish two schedules
EXPLAINED = 0.02  # of a transfer out of place on average: as the schedule says
FITS = 0.5  # of a transfer out of place on average: more explains nothing
AGAINST_STATED = 0.2  # by which another schedule must fit the calls better
MOST_CHUNKS = 16  # chunks of a stage that are tried
MOST_SHAPES = 6  # different iterations of a rank that are compared
INVERTED = 0.05  # of tasks send before they receive: then one group call exchanges both ways

# how long tasks take
BACKWARD_SHARE = 2 / 3  # of both: a backward computes two gradients, each as much as the forward
AHEAD_SHARE = 0.5  # of what a host that waits in each call takes up to the last: ahead, less
GOES_ON_NS = 120_000  # hosts make the next call within it, a transfer takes longer
