"""What tests of pictures and pages share."""

from tests.figures.chromium import chromium as chromium
