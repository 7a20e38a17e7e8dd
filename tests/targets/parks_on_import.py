"""A module that comes to rest while it is imported."""
import truth


def stay():
    truth.park()


stay()
