// A date as people write it, in ISO 8601: what a model of dates is expected to write.

const MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"];
const CENTURY_TURNS = 70; // a year of two digits is one of 1970 to 2069

/** @returns null for what is no date */
export function isoDate(text) {
	const words = text.toLowerCase(), month = MONTHS.findIndex((name) => new RegExp(`(?<![a-z])${name.slice(0, 3)}(${name.slice(3)})?(?![a-z])`).test(words));
	const joined = words.match(/(?<!\d)(\d{4})(\d\d)(\d\d)(?!\d)/);
	const numbers = joined ? joined.slice(1) : words.match(/'?(?<![a-z\d])\d+/g) ?? [];
	if (numbers.length !== (month < 0 ? 3 : 2)) return null;
	const isYear = (number) => number.length > 2;
	if (month >= 0) return written(isYear(numbers[0]) ? numbers[0] : numbers[1], month + 1, isYear(numbers[0]) ? numbers[1] : numbers[0]);
	return isYear(numbers[0]) ? written(...numbers) : written(numbers[2], numbers[1], numbers[0]);
}

function written(year, month, day) {
	const digits = year.replace("'", ""), short = Number(digits), full = digits.length > 2 ? short : short + (short < CENTURY_TURNS ? 2000 : 1900);
	const date = new Date(Date.UTC(full, month - 1, Number(day)));
	if (Number.isNaN(+date) || date.getUTCMonth() !== month - 1 || date.getUTCDate() !== Number(day)) return null;
	return date.toISOString().slice(0, 10);
}
