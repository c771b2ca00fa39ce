import assert from "node:assert/strict";
import { test } from "node:test";

import { isoDate } from "../../playground/maths/dates.js";

const WRITTEN = {
  "3rd of March '21": "2021-03-03",
  "fri 7 aug 98": "1998-08-07",
  "on Monday, the 11th of SEPTEMBER, 2069": "2069-09-11",
  "May 5th '70": "1970-05-05",
  "Sat. 31-Dec-69": "2069-12-31",
  "20210303": "2021-03-03",
  "2021.3.4": "2021-03-04",
  "4. 3. 2021": "2021-03-04",
  "04.03.21": "2021-03-04",
  "2021, mar. 4th": "2021-03-04",
};

for (const [text, iso] of Object.entries(WRITTEN)) test(`${text} is ${iso}`, () => assert.equal(isoDate(text), iso));

test("what is no date has no value", () => {
  for (const text of ["", "hello", "31.2.2021", "12", "1 2 3 4", "s3 s1 s4", "March", "99.99.99"]) assert.equal(isoDate(text), null, text);
});
