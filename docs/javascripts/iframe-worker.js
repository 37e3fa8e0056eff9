/* Search in a page that was opened as a file: browsers refuse workers there. The same script in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.place = frame.contentWindow;
      this.place.postMessage = (data) =>
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));  // the script's answers
      const script = this.place.document.createElement("script");
      this.ready = new Promise((loaded) => (script.onload = loaded));
      script.src = address;
      this.place.document.body.append(script);
    }

    postMessage(data) {
      this.ready.then(() => this.place.dispatchEvent(new this.place.MessageEvent("message", { data })));
    }

    terminate() {}
  };
}
