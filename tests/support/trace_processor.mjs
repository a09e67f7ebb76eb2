// Loads traces into Perfetto's own trace processor and prints the rows of queries as JSON.
//
//   node trace_processor.mjs FOLDER REQUEST
//
// REQUEST is a file that holds {"trace": "PATH", "queries": ["SELECT ..."]}.
// FOLDER holds the trace processor as Perfetto's web page has it: engine_bundle.node.js is the
// worker that runs trace_processor.wasm, engine.mjs speaks to it. Here both live in one thread, and
// what a browser's worker would have is put in place for them.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import vm from "node:vm";

const folder = path.resolve(process.argv[2]);
const { trace, queries } = JSON.parse(fs.readFileSync(process.argv[3], "utf8"));

// What the bundles say while they work must not stand among the answers.
console.log = console.error;
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function WorkerGlobalScope() {};
globalThis.location = { href: pathToFileURL(folder).href + "/" };
globalThis.XMLHttpRequest = class {
  open(method, name) { this.name = path.basename(String(name)); }
  send() { this.response = new Uint8Array(fs.readFileSync(path.join(folder, this.name))).buffer; }
};

// The worker asks with a tiny module, of nothing but a memory (section 5) of 64 bits (flag 4),
// whether that can be had; only the module of 32 bits is here.
const { Instance, Module } = WebAssembly;
WebAssembly.Module = function (bytes) {
  if (bytes[8] === 5 && bytes[11] === 4) throw new Error("only 32 bits");
  return new Module(bytes);
};
// It is ready as soon as it has been told where requests will stand.
const ready = new Promise((resolve) => {
  WebAssembly.Instance = function (module, imports) {
    const exports = { ...new Instance(module, imports).exports };
    const initialize = exports.trace_processor_rpc_init;
    exports.trace_processor_rpc_init = (...values) => {
      resolve();
      return initialize(...values);
    };
    return { exports };
  };
});
vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.node.js"), "utf8"));

const { EngineBase } = await import(pathToFileURL(path.join(folder, "engine.mjs")).href);
const port = { postMessage: (data) => engine.onRpcResponseBytes(data) };

class Engine extends EngineBase {
  id = "here";
  mode = "WASM";
  rpcSendRequestBytes(data) { port.onmessage({ data }); }
}

const engine = new Engine();
self.onmessage({ data: port });
await ready;
await engine.parse(new Uint8Array(fs.readFileSync(trace)));
await engine.notifyEof();
const answers = [];
for (const query of queries) {
  const result = await engine.query(query);
  const rows = [];
  const names = result.columns();
  const anything = Object.fromEntries(names.map((name) => [name, null]));
  for (const row = result.iter(anything); row.valid(); row.next()) {
    rows.push(Object.fromEntries(names.map((name) => [name, row.get(name)])));
  }
  answers.push(rows);
}
const plain = (_, value) => typeof value === "bigint" ? Number(value) : value;
process.stdout.write(JSON.stringify(answers, plain), () => process.exit(0));
