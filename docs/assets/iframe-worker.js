// Pages that are opened from disk may not start a worker, and the search runs in one. Here a hidden frame takes its place:
// the same script, the same messages. On a server this does nothing.
(() => {
  if (location.protocol !== "file:") return

  class FrameWorker extends EventTarget {
    constructor(url) {
      super()
      this.onmessage = null
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      const start = () => document.body.append(this.frame)
      const begin = () => {
        const inside = this.frame.contentWindow
        inside.document.open()
        inside.document.write("<!doctype html><html><head></head><body></body></html>")
        inside.document.close()
        // What the script says goes to the page, and scripts that it asks for are loaded one after another.
        inside.postMessage = data => {
          const message = new MessageEvent("message", { data })
          this.dispatchEvent(message)
          if (this.onmessage) this.onmessage(message)
        }
        inside.importScripts = (...urls) =>
          urls.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve())
        this.load(String(url)).then(() => {
          const waiting = this.waiting
          this.waiting = null
          waiting.forEach(data => this.deliver(data))
        })
      }
      if (document.body) { start(); begin() }
      else addEventListener("DOMContentLoaded", () => { start(); begin() })
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script")
        script.src = url
        script.onload = resolve
        script.onerror = () => reject(new Error(`${url} cannot be loaded`))
        this.frame.contentDocument.head.append(script)
      })
    }

    deliver(data) {
      const inside = this.frame.contentWindow
      inside.dispatchEvent(new inside.MessageEvent("message", { data }))
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.deliver(data)
    }

    terminate() {
      this.frame.remove()
    }
  }

  window.Worker = FrameWorker
})()
