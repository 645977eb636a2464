"""``python -m calibration``: the command perfmodel-calibrate."""

from calibration.cli import main

if __name__ == "__main__":
    main()
