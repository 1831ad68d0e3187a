// SPDX-License-Identifier: Apache-2.0
// The control window of a unit (devices/board/driver.h): registers of 64 bits, one written or read in a cycle.
module control #(parameter NARGS = 1) (
	input clk,
	input rst,
	input wr_valid,
	input [4:0] wr_reg,
	input [63:0] wr_data,
	input [4:0] rd_reg,
	output reg [63:0] rd_data,
	output [64*NARGS-1:0] args,
	output start,   // for one cycle
	input finished, // for one cycle, by the kernel; with refused
	input refused
);
	reg [63:0] arg[0:NARGS-1];
	reg [63:0] cycles;
	reg busy, done, bad;
	integer i;

	genvar g;
	generate
		for (g = 0; g < NARGS; g = g + 1) begin : flat
			assign args[64*g +: 64] = arg[g];
		end
	endgenerate

	assign start = wr_valid && wr_reg == 0 && wr_data[0] && !busy;

	always @* begin
		rd_data = 64'd0;
		case (rd_reg)
		5'd0: rd_data = {60'd0, bad, !busy, done, 1'b0};
		5'd1: rd_data = {32'h47424b4e, 24'd0, NARGS[7:0]};
		5'd2: rd_data = cycles;
		default:
			for (i = 0; i < NARGS; i = i + 1)
				if ({27'd0, rd_reg} == i + 4) rd_data = arg[i];
		endcase
	end

	always @(posedge clk) begin
		if (rst) begin
			busy <= 0;
			done <= 0;
			bad <= 0;
			cycles <= 0;
			for (i = 0; i < NARGS; i = i + 1) arg[i] <= 0;
		end else begin
			if (wr_valid && wr_reg == 0 && wr_data[1]) begin
				done <= 0;
				bad <= 0;
			end
			// What a unit works on does not change while it works.
			for (i = 0; i < NARGS; i = i + 1)
				if (wr_valid && !busy && {27'd0, wr_reg} == i + 4) arg[i] <= wr_data;
			if (start) begin
				busy <= 1;
				cycles <= 0;
			end else if (busy) begin
				cycles <= cycles + 1;
			end
			if (busy && finished) begin
				busy <= 0;
				done <= 1;
				bad <= refused;
			end
		end
	end
endmodule
