/**
 * `isthmus explain`: which rule and element decide where a packet goes, from the API's objects alone.
 *
 * Owns: the question, {@link explainPacket}, its text. Does not know: flags, kernels.
 */
export { type Explanation, explainPacket } from "./answer.ts";
export { ExplainError } from "./errors.ts";
export { parseQuestion, QUESTION_USAGE, type Question } from "./question.ts";
export { explanationText } from "./text.ts";
