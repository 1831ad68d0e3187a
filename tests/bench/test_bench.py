#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark's own tests: targets are what SPECIFICATION.md promises, and the report is well-formed."""
import pathlib
import re
import sys
import unittest
import xml.dom.minidom

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
sys.path[:0] = [str(SOURCE / "tests" / "unit" / "tools"), str(HERE)]
import report  # pylint: disable=wrong-import-position
import tap  # pylint: disable=wrong-import-position
import targets  # pylint: disable=wrong-import-position

CDF = [[100.0, 0], [110.0, 0.5], [900.0, 0.999]]
PLOTS = {
    "rtt": {True: (CDF, CDF), False: (CDF, CDF)},
    "parked": {True: (CDF, CDF)},
    "rate": {True: {"raw": 1e8, "one": 2e6, "single": 1e6, "pooled": 3e6, "isolated": 2e6}},
    "fairness": [(0.1, 0.5), (0.2, 0.75)],
    "isolation": (CDF, CDF),
    "recovery": [-2.0, -1.0, 50.0, 51.0],
}
ENVIRONMENT = {"name": "environment", "value": "a <processor>", "unit": "", "cores": 2, "kernel": "6", "commit": "c",
               "date": "d", "load": 0}


def promised_row(name):
    """The row of SPECIFICATION.md whose first cell names the figure."""
    wanted = targets.PROMISED_AS.get(name, name)
    for line in (SOURCE / "SPECIFICATION.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 3 and wanted in cells[1].split(", "):
            return cells[2]
    return None


def numbers_of(text):
    return {float(word) for word in re.findall(r"\d+(?:\.\d+)?(?:e\d+)?", text)}


class Targets(unittest.TestCase):
    def test_targets_are_those_promised(self):
        for name, target in targets.TARGETS.items():
            with self.subTest(name):
                promise = promised_row(name)
                self.assertIsNotNone(promise, f"SPECIFICATION.md does not promise {name}")
                if name == "tasks_per_s_4_over_1":
                    self.assertIn("tasks_per_s_1", promise)
                    continue
                limits = {limit for limit in target if limit is not None}
                self.assertLessEqual(limits, numbers_of(promise), f"{name}: {promise}")

    def test_is_met_judges_both_ends_and_nothing_else(self):
        both = targets.Target(2.85, 3.15)
        self.assertTrue(targets.is_met(both, 3.0))
        self.assertFalse(targets.is_met(both, 3.2))
        self.assertFalse(targets.is_met(both, 2.8))
        self.assertIsNone(targets.is_met(both, None))
        self.assertIsNone(targets.is_met(None, 1))
        self.assertTrue(targets.is_met(targets.at_most(0), 0.0))


class Report(unittest.TestCase):
    def records(self):
        made = [ENVIRONMENT]
        for name, target in targets.TARGETS.items():
            value = target.high if target.high is not None else target.low
            made.append({"name": name, "value": float(value), "unit": "x", "target": targets.text(target), "met": True})
        made.append({"name": "not_there", "value": None, "unit": "", "how": "a <reason>"})
        return made

    def test_page_holds_wellformed_pictures_and_loads_nothing(self):
        page = report.page(self.records(), PLOTS)
        pictures = re.findall(r"<svg.*?</svg>", page, re.S)
        self.assertEqual(len(pictures), 7)
        for picture in pictures:
            xml.dom.minidom.parseString(picture)
        self.assertNotRegex(page, r"(?:src|href)=|url\(|http")
        self.assertNotIn("<processor>", page)
        self.assertNotIn("<reason>", page)

    def test_page_without_plots_still_has_the_table(self):
        page = report.page(self.records(), {})
        self.assertIn("rtt_ratio_raw", page)


if __name__ == "__main__":
    tap.main()
