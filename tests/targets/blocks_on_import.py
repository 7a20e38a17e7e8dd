"""A module that blocks while it is imported."""
import truth


def stay():
    truth.park()


stay()
