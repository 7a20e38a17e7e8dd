# cython: language_level=3
# A Cython extension for the tests of native stacks. A line of the call path has a marker, by which the target finds it.
#
#     spy_cython.run(f)     run > Worker.work > Worker.step > deeper (3 times) > both > f


cdef int deeper(object function, int n) except -1:
    if n > 0:
        return deeper(function, n - 1)  # deeper
    both(function)  # deepest
    return 0


cpdef int both(object function) except -1:
    function()  # both
    return 0


cdef class Worker:
    cdef object function

    def __init__(self, function):
        self.function = function

    cdef int step(self, int n) except -1:
        return deeper(self.function, n)  # step

    def work(self, int n):
        result = self.step(n)  # work
        return result


def run(function):
    worker = Worker(function)
    result = worker.work(2)  # run
    return result


def load_data(function):
    """Its body has a number before its name that could be the length of a scope."""
    result = function()  # load_data
    return result


def count_up(function):
    yield 1
    function()  # count_up
    yield 2


def generate(function):
    total = 0
    for number in count_up(function):  # generate
        total += number
    return total
