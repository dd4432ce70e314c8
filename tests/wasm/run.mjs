// Runs the program of this folder: `node run.mjs test_wasm.wasm`. Fails if it imports anything, traps, or gives other answers.
import { readFileSync } from 'node:fs';
import assert from 'node:assert/strict';

const bytes = readFileSync(process.argv[2]);
const module = new WebAssembly.Module(bytes);
assert.deepEqual(WebAssembly.Module.imports(module), [], 'the host of a program need not provide anything');
const { exports: program } = new WebAssembly.Instance(module);
const text = () => new TextDecoder().decode(new Uint8Array(program.memory.buffer, program.text(), program.text_length()));
try {
  program.run();
} catch (trap) {
  console.error(text() || trap);
  process.exit(1);
}
assert.match(text(), /WebAssembly.*; record a native build/);
// Ten steps with an annotation and two spans each, and the annotation of a block.
assert.equal(program.spans(), 31);
console.log(`${bytes.length} bytes; start: ${text()}`);
