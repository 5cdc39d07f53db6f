// Texts from outside: of the API, which has them from training programs and people, and of the address.

// Characters that are obeyed instead of shown: controls without tab and line feed, lone surrogates,
// separators of lines and paragraphs, and the controls of the bidirectional algorithm, which mirror what
// follows. The command line has the same list.
const OBEYED = /[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]|\p{Cs}/gu;

const escaped = (character) => {
  const code = character.codePointAt(0).toString(16);
  return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
};

export const visible = (text) => text.replace(OBEYED, escaped);

// A JSON document in which all texts, and the names of all keys, are visible.
export const parse = (json) =>
  JSON.parse(json, (_, value) => {
    if (typeof value === "string") return visible(value);
    if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [visible(name), each]));
  });

// A part of the address; one that is no valid encoding stands for itself.
export function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
